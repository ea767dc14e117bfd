//! Graphs: captured work that is launched as a whole.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::sync::Arc;

use crate::ffi::{Handle, Out};
use crate::status::Status;
use crate::work::{Communication, Work};

driver! {
    fn cuGraphInstantiateWithFlags(executable: Out<Handle>, graph: Handle, flags: u64) |state| {
        if flags != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        let graph = Arc::clone(state.graphs.get(&graph.0).ok_or(Status::INVALID_HANDLE)?);
        let number = state.new_handle();
        state.executables.insert(number, graph);
        executable.put(Handle(number)).ok_or(Status::INVALID_VALUE)
    }
    fn cuGraphUpload(executable: Handle, stream: Handle) |state| {
        state.stream(stream)?;
        if state.executables.contains_key(&executable.0) { Ok(()) } else { Err(Status::INVALID_HANDLE) }
    }
    fn cuGraphLaunch(executable: Handle, stream: Handle) |state| {
        let stream = state.stream(stream)?;
        // Child graphs are not supported.
        state.refuse_in_capture(stream)?;
        let graph = Arc::clone(state.executables.get(&executable.0).ok_or(Status::INVALID_HANDLE)?);
        graph.communications().for_each(Communication::submitted);
        state.enqueue(stream, Work::Graph { executable: executable.0, graph })
    }
    fn cuGraphDestroy(graph: Handle) |state| {
        state.graphs.remove(&graph.0).map(|_| ()).ok_or(Status::INVALID_HANDLE)
    }
    fn cuGraphExecDestroy(executable: Handle) |state| {
        // Pending launches keep the nodes alive.
        state.executables.remove(&executable.0).map(|_| ()).ok_or(Status::INVALID_HANDLE)
    }
    fn cuGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) |state| {
        let n_nodes = state.graphs.get(&graph.0).ok_or(Status::INVALID_HANDLE)?.nodes.len();
        if !nodes.is_null() {
            let handles: Vec<Handle> = (1..=n_nodes as u64).map(|node| Handle(graph.0 + node)).collect();
            nodes.put_list(&handles).ok_or(Status::INVALID_VALUE)?;
        }
        count.put(n_nodes).ok_or(Status::INVALID_VALUE)
    }
}
