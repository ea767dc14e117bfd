//! Choice of devices in several processes. Each process tells the others which GPUs it has, and all
//! reach the same decision.

use std::ops::Range;

use super::{
    inbox::mismatch,
    progress::{OPERATION_BYTES, Operation},
};
use crate::{Device, Error, ErrorKind};

/// The devices that a process offers before its ranks start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceOffer {
    /// Fingerprint of the model and the configuration.
    start: Operation,
    /// Device that the user requested.
    device: Device,
    /// Identifies the machine of the process.
    machine: u64,
    /// A number for each usable GPU, the same in all processes.
    gpus: Vec<u64>,
    /// True if the machine has a driver, so that the user expects GPUs to be used.
    has_driver: bool,
    /// Reason why no GPU can be used, or empty.
    obstacle: String,
}

/// The devices of a process's ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeviceChoice {
    /// The CPU, with the reason why not GPUs if the user should know it.
    Cpu(Option<String>),
    /// GPUs with these ordinals, one for each rank.
    Gpus(Range<usize>),
}

/// Maximum number of GPUs in an offer.
const MAX_GPUS: usize = 64;
const MAX_TEXT: usize = 512;
/// Length of an encoded offer, the same for all processes.
const N_BYTES: usize = OPERATION_BYTES + 1 + 8 + 1 + 8 * MAX_GPUS + 1 + 2 + MAX_TEXT;

impl DeviceOffer {
    /// Returns the offer of this process.
    pub(super) fn of_process(start: Operation, device: Device, machine: usize) -> Self {
        let (found, has_driver) = match device {
            Device::Cpu => (Ok(Vec::new()), false),
            Device::Auto | Device::Cuda => gpus(),
        };
        let (mut gpus, obstacle) = match found {
            Ok(gpus) => (gpus, String::new()),
            Err(why) => (Vec::new(), why),
        };
        gpus.truncate(MAX_GPUS);
        Self { start, device, machine: machine as u64, gpus, has_driver, obstacle }
    }

    /// Encodes the offer. Long texts are truncated.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.start.to_bytes().to_vec();
        bytes.push(self.device as u8);
        bytes.extend_from_slice(&self.machine.to_le_bytes());
        bytes.extend(u8::try_from(self.gpus.len()));
        let mut gpus = self.gpus.clone();
        gpus.resize(MAX_GPUS, 0);
        bytes.extend(gpus.iter().flat_map(|it| it.to_le_bytes()));
        bytes.push(u8::from(self.has_driver));
        let text = &self.obstacle[..self.obstacle.floor_char_boundary(MAX_TEXT)];
        bytes.extend(u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes.resize(N_BYTES, 0);
        bytes
    }

    /// Decodes an offer. Returns `None` if the bytes are not valid.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (start, rest) = bytes.split_at_checked(OPERATION_BYTES)?;
        let (&[device], rest) = rest.split_first_chunk()?;
        let (machine, rest) = rest.split_first_chunk()?;
        let (&[n_gpus], rest) = rest.split_first_chunk()?;
        let (gpus, rest) = rest.split_at_checked(8 * MAX_GPUS)?;
        let gpus = gpus.as_chunks().0.iter().map(|it| u64::from_le_bytes(*it));
        let (&[has_driver], rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let text = rest.get(..usize::from(u16::from_le_bytes(*length)))?;
        Some(Self {
            start: Operation::from_bytes(start)?,
            device: *Device::ALL.get(usize::from(device))?,
            machine: u64::from_le_bytes(*machine),
            gpus: gpus.take(usize::from(n_gpus)).collect(),
            has_driver: has_driver != 0,
            obstacle: String::from_utf8_lossy(text).into_owned(),
        })
    }
}

/// Returns the GPUs of this process as numbers that all processes share, or the reason why there is
/// none, and whether there is a driver.
#[cfg(feature = "cuda")]
fn gpus() -> (Result<Vec<u64>, String>, bool) {
    let found = crate::cuda::devices::uuids().map_err(|error| error.to_string());
    (
        found.map(|it| it.iter().map(|it| soybean_plan::fingerprint(*it)).collect()),
        crate::cuda::has_driver(),
    )
}

#[cfg(not(feature = "cuda"))]
fn gpus() -> (Result<Vec<u64>, String>, bool) {
    (crate::devices::usable().map(|_| Vec::new()), false)
}

/// Chooses the devices of process `number`, which has `n_local` ranks like every process. `offers`
/// are the encoded offers of all processes.
///
/// # Errors
/// If processes start differently, or GPUs were requested and a process has too few.
pub(super) fn choose_devices(
    offers: &[u8],
    number: usize,
    n_local: usize,
) -> Result<DeviceChoice, Error> {
    let offers: Option<Vec<DeviceOffer>> =
        offers.chunks_exact(N_BYTES).map(DeviceOffer::from_bytes).collect();
    let offers = offers.filter(|it| number < it.len()).ok_or_else(|| {
        let message = "expected the devices of each process, found invalid data";
        Error::new(ErrorKind::Process, message)
    })?;
    let own = &offers[number];
    for (process, offer) in offers.iter().enumerate() {
        if offer.start != own.start {
            return Err(mismatch((process, &offer.start), (number, &own.start)));
        }
    }
    let first = &offers[0];
    if let Some(other) = offers.iter().position(|it| it.device != first.device) {
        let (one, two) = (first.device, offers[other].device);
        let message = format!(
            "expected the same device in all processes, found --device {one} in process 0, and {two} in process {other}"
        );
        return Err(Error::new(ErrorKind::Choice, message));
    }
    let obstacle = match own.device {
        Device::Cpu => return Ok(DeviceChoice::Cpu(None)),
        Device::Auto | Device::Cuda => obstacle(&offers, n_local),
    };
    match (obstacle, own.device) {
        (None, _) => Ok(DeviceChoice::Gpus(range(&offers, number, n_local))),
        (Some(obstacle), Device::Cuda) => Err(Error::new(ErrorKind::Device, obstacle)),
        (Some(obstacle), _) => {
            let announce = offers.iter().any(|it| it.has_driver);
            Ok(DeviceChoice::Cpu(announce.then_some(obstacle)))
        }
    }
}

/// Returns the processes that see the same GPUs as this one.
fn sharing(offers: &[DeviceOffer], number: usize) -> impl Iterator<Item = usize> {
    let key = |it: &DeviceOffer| (it.machine, it.gpus.clone());
    let own = key(&offers[number]);
    let all = offers.iter().enumerate().filter(move |(_, it)| key(it) == own);
    all.map(|(process, _)| process)
}

/// Returns the GPUs of a process. Processes that see the same GPUs take them in order.
fn range(offers: &[DeviceOffer], number: usize, n_local: usize) -> Range<usize> {
    let n_before = sharing(offers, number).take_while(|it| *it != number).count();
    n_before * n_local..(n_before + 1) * n_local
}

/// A GPU that a rank of a process takes.
struct TakenGpu {
    machine: u64,
    gpu: u64,
    process: usize,
}

/// Returns the reason why some rank has no GPU of its own, if there is one.
fn obstacle(offers: &[DeviceOffer], n_local: usize) -> Option<String> {
    for (process, offer) in offers.iter().enumerate() {
        if !offer.obstacle.is_empty() {
            return Some(format!("process {process}: {}", offer.obstacle));
        }
        let (n_sharing, found) = (sharing(offers, process).count(), offer.gpus.len());
        let expected = n_sharing * n_local;
        if found < expected {
            let processes = if n_sharing == 1 {
                String::new()
            } else {
                format!("each of {n_sharing} processes with ")
            };
            return Some(format!(
                "process {process}: expected {expected} GPUs, one for each rank of {processes}{n_local} ranks, found {found}"
            ));
        }
    }
    let mut taken: Vec<TakenGpu> = Vec::new();
    for (process, offer) in offers.iter().enumerate() {
        for gpu in &offer.gpus[range(offers, process, n_local)] {
            let is_same = |it: &&TakenGpu| (it.machine, it.gpu) == (offer.machine, *gpu);
            if let Some(TakenGpu { process: other, .. }) = taken.iter().find(is_same) {
                return Some(format!(
                    "expected a GPU for each rank, found one that processes {other} and {process} would both take: let all processes of a machine see the same GPUs, or disjoint ones"
                ));
            }
            taken.push(TakenGpu { machine: offer.machine, gpu: *gpu, process });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::progress::OperationKind;

    fn offer(device: Device, machine: u64, gpus: &[u64]) -> DeviceOffer {
        let obstacle =
            if gpus.is_empty() { "expected a GPU, found none".to_owned() } else { String::new() };
        let (start, gpus) = (Operation::of(OperationKind::Start), gpus.to_vec());
        DeviceOffer { start, device, machine, gpus, has_driver: false, obstacle }
    }

    /// Checks the decisions of all processes.
    fn check(offers: &[DeviceOffer], n_local: usize, expected: &[&str]) {
        let bytes: Vec<u8> = offers.iter().flat_map(DeviceOffer::to_bytes).collect();
        let found = (0..offers.len()).map(|number| match choose_devices(&bytes, number, n_local) {
            Ok(DeviceChoice::Cpu(None)) => "cpu".to_owned(),
            Ok(DeviceChoice::Cpu(Some(obstacle))) => format!("cpu: {obstacle}"),
            Ok(DeviceChoice::Gpus(gpus)) => format!("{gpus:?}"),
            Err(error) => error.to_string(),
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn processes_of_a_machine_share_its_gpus() {
        let all = [1, 2, 3, 4];
        let on = |machine| offer(Device::Cuda, machine, &all);
        check(&[on(0), on(0)], 2, &["0..2", "2..4"]);
        check(&[on(0), on(0), on(2), on(2)], 2, &["0..2", "2..4", "0..2", "2..4"]);
        let own = |gpus: &[u64]| offer(Device::Auto, 0, gpus);
        check(&[own(&[1, 2]), own(&[3, 4])], 2, &["0..2", "0..2"]);
    }

    #[test]
    fn all_processes_report_a_missing_gpu() {
        let on = |machine, gpus: &[u64]| offer(Device::Cuda, machine, gpus);
        let too_few = "process 0: expected 4 GPUs, one for each rank of each of 2 processes with 2 ranks, found 3";
        check(&[on(0, &[1, 2, 3]), on(0, &[1, 2, 3])], 2, &[too_few; 2]);
        let too_few = "process 1: expected 2 GPUs, one for each rank of 2 ranks, found 1";
        check(&[on(0, &[1, 2]), on(1, &[1])], 2, &[too_few; 2]);
        let none = "process 1: expected a GPU, found none";
        check(&[on(0, &[1, 2]), on(1, &[])], 2, &[none; 2]);
        let both = "expected a GPU for each rank, found one that processes 0 and 1 would both take: let all processes of a machine see the same GPUs, or disjoint ones";
        check(&[on(0, &[1]), on(0, &[1, 2])], 1, &[both; 2]);
    }

    #[test]
    fn auto_uses_the_cpu_everywhere_if_a_process_has_too_few_gpus() {
        let on = |gpus: &[u64]| offer(Device::Auto, 0, gpus);
        check(&[on(&[]), on(&[])], 1, &["cpu"; 2]);
        let mut with_driver = on(&[1]);
        with_driver.has_driver = true;
        let obstacle = "cpu: process 1: expected a GPU, found none";
        check(&[with_driver, on(&[])], 1, &[obstacle; 2]);
    }

    #[test]
    fn processes_must_start_with_the_same_settings() {
        let on = |device| offer(device, 0, &[1, 2]);
        check(&[on(Device::Cpu), on(Device::Cpu)], 1, &["cpu"; 2]);
        let other = "expected the same device in all processes, found --device cpu in process 0, and cuda in process 1";
        check(&[on(Device::Cpu), on(Device::Cuda)], 1, &[other; 2]);
        let mut elsewhere = on(Device::Cpu);
        elsewhere.start.id = 5;
        let bytes = [on(Device::Cpu).to_bytes(), elsewhere.to_bytes()].concat();
        let error = choose_devices(&bytes, 1, 1).unwrap_err().to_string();
        assert!(error.contains("0000000000000005, communicator 0) in process 1"), "{error}");
        assert!(choose_devices(&bytes[1..], 1, 1).is_err());
    }

    #[test]
    fn long_texts_are_truncated() {
        let mut long = offer(Device::Auto, 3, &[]);
        long.obstacle = "ü".repeat(MAX_TEXT);
        let found = DeviceOffer::from_bytes(&long.to_bytes()).unwrap();
        assert_eq!(found.obstacle, "ü".repeat(MAX_TEXT / 2));
        assert_eq!(
            DeviceOffer { obstacle: String::new(), ..found },
            DeviceOffer { obstacle: String::new(), ..long }
        );
    }
}
