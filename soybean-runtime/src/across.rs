//! What one rank sends to ranks of other processes in a collective, and what it receives from them: the same elements that ranks of one process read
//! in each other's arenas.
#![expect(unsafe_code, reason = "messages lie in arenas that other ranks read")]

use std::{ops::Range, ptr};

use soybean_plan::{Collective, Mesh};

use crate::{
    Error,
    abort::Abort,
    arena::Arena,
    check::ALIGNMENT,
    cpu::Region,
    mail::Mail,
    movement::{Movement, taken},
    overlap::Overlap,
};

/// The messages of one rank in one collective.
pub(crate) struct Across {
    /// Parts of inputs.
    pub(crate) first: Exchange,
    /// Shares of the result, once they are combined.
    pub(crate) second: Exchange,
    /// Where what is combined comes from, in the order of the group; empty where nothing is.
    pub(crate) sources: Vec<Source>,
    /// The staging memory that all this needs.
    pub(crate) n_bytes: usize,
}

/// Messages that are under way together.
#[derive(Default)]
pub(crate) struct Exchange {
    sends: Vec<Parcel>,
    receives: Vec<Parcel>,
}

/// Where partial results of a rank are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the arena of this rank.
    Arena(usize),
    /// In staging memory from this byte on, those that are combined only, one after the other.
    Staged(usize),
}

/// One message.
struct Parcel {
    peer: usize,
    n_elements: usize,
    place: Place,
}

/// Where the elements of a message lie on this rank.
enum Place {
    /// In a buffer in one piece, from this element on.
    Buffer(usize),
    /// In staging memory from this byte on, where they stay.
    Stage(usize),
    /// In a buffer in pieces, and so in staging memory while they are under way.
    Pieces { start: usize, overlap: Overlap },
}

impl Across {
    /// The messages of `rank`, of a process that has the ranks `here`, for its part in a collective; none where all from which it takes are here.
    pub(crate) fn new(
        collective: &Collective,
        movement: &Movement,
        mesh: &Mesh,
        rank: usize,
        here: &Range<usize>,
    ) -> Option<Self> {
        let peers: Vec<usize> = match movement {
            Movement::Copy(parts) => parts.iter().map(|it| it.0).collect(),
            Movement::Scatter { group, .. } | Movement::Reduce { group, .. } => group.clone(),
        };
        let outside: Vec<usize> = peers.into_iter().filter(|it| !here.contains(it)).collect();
        if outside.is_empty() {
            return None;
        }
        let mut stage = Stage { n_bytes: 0, element_bytes: collective.dtype.bytes() };
        let taken = |taker, giver| taken(collective, mesh, taker, giver);
        let (mut first, mut second, mut sources) =
            (Exchange::default(), Exchange::default(), Vec::new());
        match movement {
            Movement::Copy(_) => {
                first.sends = parcels(&outside, |it| stage.sent(taken(it, rank)));
                first.receives = parcels(&outside, |it| stage.received(taken(rank, it)));
            }
            Movement::Scatter { group, overlap } => {
                first.sends = parcels(&outside, |it| stage.sent(taken(it, it)));
                let n_elements = overlap.n_elements();
                first.receives = parcels(&outside, |_| stage.kept(n_elements));
                sources = sources_of(group, &first.receives);
            }
            Movement::Reduce { group, shares } => {
                let share = |rank: usize| {
                    let position = group.iter().position(|it| *it == rank);
                    shares[position.expect("a rank is in its group")].clone()
                };
                first.sends = parcels(&outside, |it| in_buffer(share(it)));
                first.receives = parcels(&outside, |_| stage.kept(share(rank).len()));
                second.sends = parcels(&outside, |_| in_buffer(share(rank)));
                second.receives = parcels(&outside, |it| in_buffer(share(it)));
                sources = sources_of(group, &first.receives);
            }
        }
        first.drop_empty();
        second.drop_empty();
        Some(Self { first, second, sources, n_bytes: stage.n_bytes })
    }
}

impl Exchange {
    /// Begins to receive parts of `to`, and to send parts of `from`.
    ///
    /// # Safety
    /// Both regions have the elements of the tiles, and the stage the bytes of [`Across::n_bytes`]. They stay until the mail has finished, nobody writes to `from`, and nobody else uses the
    /// stage and those parts of `to`.
    pub(crate) unsafe fn begin(
        &self,
        mail: &mut dyn Mail,
        from: &Region,
        to: &Region,
        stage: *mut u8,
    ) -> Result<(), Error> {
        let element_bytes = from.dtype.bytes();
        for Parcel { peer, n_elements, place } in &self.receives {
            let memory = match place {
                Place::Buffer(start) => to.place(*start),
                Place::Stage(start) | Place::Pieces { start, .. } => stage.wrapping_add(*start),
            };
            // SAFETY: required of the caller.
            unsafe { mail.receive(*peer, memory, n_elements * element_bytes) }?;
        }
        for Parcel { peer, n_elements, place } in &self.sends {
            let memory = match place {
                Place::Buffer(start) => from.place(*start),
                Place::Stage(start) => stage.wrapping_add(*start),
                Place::Pieces { start, overlap } => {
                    let packed = stage.wrapping_add(*start);
                    // SAFETY: required of the caller.
                    unsafe { pack(overlap, from, packed) };
                    packed
                }
            };
            // SAFETY: required of the caller.
            unsafe { mail.send(*peer, memory, n_elements * element_bytes) }?;
        }
        Ok(())
    }

    /// Puts in their places what has come in pieces.
    ///
    /// # Safety
    /// As [`Self::begin`], whose mail has finished.
    pub(crate) unsafe fn unpack(&self, to: &Region, stage: *const u8) {
        let element_bytes = to.dtype.bytes();
        for parcel in &self.receives {
            let Place::Pieces { start, overlap } = &parcel.place else { continue };
            let mut packed = stage.wrapping_add(*start);
            overlap.for_each(|here, _, length| {
                let n_bytes = length * element_bytes;
                // SAFETY: required of the caller.
                unsafe { to.place(here).copy_from_nonoverlapping(packed, n_bytes) };
                packed = packed.wrapping_add(n_bytes);
            });
        }
    }

    /// Nobody waits for messages without elements.
    fn drop_empty(&mut self) {
        self.sends.retain(|it| it.n_elements > 0);
        self.receives.retain(|it| it.n_elements > 0);
    }
}

/// How a rank reaches those of other processes.
pub(crate) struct Outside {
    mail: Box<dyn Mail>,
    /// Staging memory, for one collective at a time.
    stage: Arena,
}

impl Outside {
    /// With staging memory of this size.
    pub(crate) fn new(mail: Box<dyn Mail>, n_bytes: usize) -> Result<Self, Error> {
        Ok(Self { mail, stage: Arena::new(n_bytes)? })
    }

    /// Whether no message is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.mail.is_idle()
    }
}

/// The messages of one collective while it runs; without other processes there are none.
pub(crate) struct Traffic<'a> {
    outside: Option<(&'a mut Outside, &'a Across)>,
    abort: &'a Abort,
}

/// The two legs of messages.
#[derive(Clone, Copy)]
pub(crate) enum Leg {
    /// [`Across::first`].
    Inputs,
    /// [`Across::second`].
    Shares,
}

impl Leg {
    const fn of(self, across: &Across) -> &Exchange {
        match self {
            Self::Inputs => &across.first,
            Self::Shares => &across.second,
        }
    }
}

impl<'a> Traffic<'a> {
    /// Of a collective among ranks of this process only, without anything.
    pub(crate) const fn new(
        outside: Option<(&'a mut Outside, &'a Across)>,
        abort: &'a Abort,
    ) -> Self {
        Self { outside, abort }
    }

    /// Begins to receive parts of `to`, and to send parts of `from`.
    ///
    /// # Safety
    /// As [`Exchange::begin`], for this rank's part of the collective.
    pub(crate) unsafe fn begin(
        &mut self,
        leg: Leg,
        from: &Region,
        to: &Region,
    ) -> Result<(), Error> {
        let Some((outside, across)) = &mut self.outside else { return Ok(()) };
        let (mail, stage) = (&mut *outside.mail, outside.stage.start());
        // SAFETY: required of the caller; the stage was made for the largest of all collectives.
        unsafe { leg.of(across).begin(mail, from, to, stage) }
    }

    /// Waits until all has come and gone.
    ///
    /// # Safety
    /// As [`Exchange::unpack`].
    pub(crate) unsafe fn finish(&mut self, leg: Leg, to: &Region) -> Result<(), Error> {
        let Some((outside, across)) = &mut self.outside else { return Ok(()) };
        outside.mail.finish(self.abort)?;
        // SAFETY: required of the caller; all messages have come.
        unsafe { leg.of(across).unpack(to, outside.stage.start()) };
        Ok(())
    }

    /// Where staging memory begins.
    pub(crate) fn stage(&self) -> *const u8 {
        self.outside.as_ref().map_or(ptr::null(), |it| it.0.stage.start().cast_const())
    }
}

/// # Safety
/// As [`Exchange::begin`].
unsafe fn pack(overlap: &Overlap, from: &Region, packed: *mut u8) {
    let mut packed = packed;
    overlap.for_each(|_, there, length| {
        let n_bytes = length * from.dtype.bytes();
        // SAFETY: required of the caller.
        unsafe { packed.copy_from_nonoverlapping(from.place(there), n_bytes) };
        packed = packed.wrapping_add(n_bytes);
    });
}

/// Staging memory that is handed out piece by piece.
struct Stage {
    n_bytes: usize,
    element_bytes: usize,
}

impl Stage {
    /// How elements of the input are sent.
    fn sent(&mut self, overlap: Overlap) -> (usize, Place) {
        self.moved(overlap, |_, there| there)
    }

    /// How elements of the result are received.
    fn received(&mut self, overlap: Overlap) -> (usize, Place) {
        self.moved(overlap, |here, _| here)
    }

    fn moved(&mut self, overlap: Overlap, side: impl Fn(usize, usize) -> usize) -> (usize, Place) {
        let (mut n_elements, mut first, mut is_whole) = (0, None, true);
        overlap.for_each(|here, there, length| {
            let start = side(here, there);
            is_whole &= start == *first.get_or_insert(start) + n_elements;
            n_elements += length;
        });
        match first {
            Some(start) if is_whole => (n_elements, Place::Buffer(start)),
            Some(_) | None => {
                (n_elements, Place::Pieces { start: self.taken(n_elements), overlap })
            }
        }
    }

    /// How partial results are received.
    fn kept(&mut self, n_elements: usize) -> (usize, Place) {
        (n_elements, Place::Stage(self.taken(n_elements)))
    }

    fn taken(&mut self, n_elements: usize) -> usize {
        let start = self.n_bytes;
        self.n_bytes += (n_elements * self.element_bytes).next_multiple_of(ALIGNMENT);
        start
    }
}

const fn in_buffer(share: Range<usize>) -> (usize, Place) {
    (share.end - share.start, Place::Buffer(share.start))
}

fn parcels(peers: &[usize], mut of: impl FnMut(usize) -> (usize, Place)) -> Vec<Parcel> {
    let parcel = |peer: &usize| {
        let (n_elements, place) = of(*peer);
        Parcel { peer: *peer, n_elements, place }
    };
    peers.iter().map(parcel).collect()
}

fn sources_of(group: &[usize], received: &[Parcel]) -> Vec<Source> {
    let source = |rank: &usize| {
        let parcel = received.iter().find(|it| it.peer == *rank);
        match parcel.map(|it| &it.place) {
            Some(Place::Stage(start)) => Source::Staged(*start),
            Some(Place::Buffer(_) | Place::Pieces { .. }) | None => Source::Arena(*rank),
        }
    };
    group.iter().map(source).collect()
}
