//! Handles of cuDNN.
#![expect(unsafe_code, reason = "cuDNN is a C library")]

use std::{fmt, sync::Arc};

use super::{CudnnError, cudnnCreate, cudnnDestroy, cudnnHandle_t, cudnnSetStream};
use crate::{
    Error, ErrorKind,
    cuda::{capture_lock::not_capturing, gpu::Gpu, libraries::installation, stream::Stream},
};

/// A cuDNN handle of one GPU.
pub(in crate::cuda) struct Cudnn {
    gpu: Arc<Gpu>,
    raw: cudnnHandle_t,
}

// SAFETY: a handle may be used from any thread, one at a time, whose current context is the
// handle's. Every call here makes it current.
unsafe impl Send for Cudnn {}

impl Cudnn {
    /// Creates a cuDNN handle for a GPU.
    ///
    /// # Errors
    /// If cuDNN is missing or does not support the GPU.
    pub(in crate::cuda) fn new(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        installation().cudnn()?;
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        let _no_capture = not_capturing();
        // SAFETY: the result is a place of this function.
        let made = unsafe { cudnnCreate(&mut raw) };
        made.result().map_err(|error| cudnn_error(&format!("starting cuDNN on {gpu:?}"), error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }

    pub(in crate::cuda) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(in crate::cuda) const fn raw(&self) -> cudnnHandle_t {
        self.raw
    }

    /// Returns a name that tells a graph, the GPU and the versions of driver and cuDNN from all
    /// others.
    pub(in crate::cuda) fn name_of(&self, graph: &impl fmt::Debug) -> String {
        let version = installation().cudnn().map_or([0; 3], |it| it.version);
        format!("{} {:?} {version:?} {graph:?}", self.gpu.name, installation().driver())
    }

    /// Makes the later calls with this handle queue work on a stream.
    pub(in crate::cuda) fn set_stream(&self, stream: &Stream) -> Result<(), Error> {
        let raw = stream.raw()?;
        // SAFETY: both handles are alive.
        let set = unsafe { cudnnSetStream(self.raw, raw.cast()) };
        set.result().map_err(|error| cudnn_error("choosing a stream", error))
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _no_capture = not_capturing();
            // SAFETY: made in `new`. After a fatal error cuDNN refuses, and there is nothing left
            // to destroy.
            let _refused = unsafe { cudnnDestroy(self.raw) };
        }
    }
}

/// Converts an error of cuDNN.
pub(in crate::cuda) fn cudnn_error(what: &str, error: CudnnError) -> Error {
    Error::new(ErrorKind::Device, format!("{what}: {error}"))
}

/// Returns true if cuDNN rejects the request, rather than failing. Codes from 2000 are bad
/// parameters, and codes from 3000 are unsupported requests.
pub(in crate::cuda) fn is_refusal(CudnnError(status): CudnnError) -> bool {
    (2000..4000).contains(&status.0)
}
