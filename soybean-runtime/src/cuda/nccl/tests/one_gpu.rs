//! Tests of NCCL with one GPU. With `SOYBEAN_ON_GPU` set, as `scripts/gpu-check.sh` does, they run
//! on the machine's GPU and the real library, otherwise on a virtual one.

use std::env;

use super::*;

/// Runs the test of this name in this module.
fn on_one_gpu(test: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if env::var_os("SOYBEAN_ON_GPU").is_some() {
        return body();
    }
    on_virtual_gpus(&format!("cuda::nccl::tests::one_gpu::{test}"), settings, |_| body());
}

#[test]
fn a_single_rank_gets_back_what_it_sends() {
    on_one_gpu("a_single_rank_gets_back_what_it_sends", &[], || check_collectives(1));
}

#[test]
fn two_ranks_cannot_share_a_gpu() {
    on_one_gpu("two_ranks_cannot_share_a_gpu", &[], || {
        let gpu = &gpus(1)[0];
        let error = group(&[Arc::clone(gpu), Arc::clone(gpu)]).err();
        let error = error.expect("a GPU is not its own peer");
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.to_string().starts_with("connecting [GPU 0"), "{error}");
    });
}

#[test]
fn a_rank_that_never_connects_is_not_awaited_for_ever() {
    let folder = env::temp_dir().join(format!("soybean-alone-{}", std::process::id()));
    let settings = [("SOYBEAN_FAKE_NCCL_FOLDER", folder.to_str().unwrap())];
    on_one_gpu("a_rank_that_never_connects_is_not_awaited_for_ever", &settings, || {
        let local = [(0, Arc::clone(&gpus(1)[0]))];
        let peers: Arc<dyn Peers> = Arc::new(NoPeers);
        let limit = Some(Duration::from_millis(200));
        let group = CommunicatorGroup::new(&UniqueId::new().unwrap(), 2, &local, (&peers, limit));
        let error = group.err().expect("the other rank is missing").to_string();
        let expected = "expected that NCCL starts it within 200ms, found it in progress";
        assert!(error.starts_with("connecting [GPU 0") && error.ends_with(expected), "{error}");
    });
    let _never_made = std::fs::remove_dir_all(folder);
}
