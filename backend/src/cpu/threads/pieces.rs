//! Work in pieces that may be done twice, so that nobody waits for a member that has lost its core.
//!
//! The kernel takes a core away for milliseconds; a piece takes microseconds. Whoever has waited for a piece longer than it can take does it again, and the
//! region ends. The late member finds its inputs as they were, because they belong to the work and not to the caller, and what it writes is read by nobody:
//! the caller fills a work anew only when it has it for itself ([`Arc::get_mut`]).
//!
//! ```text
//! member   takes piece 7 ─ loses its core ──────────────────────────── writes the same results, leaves the old work
//! caller   waits ─ does piece 7 ─ ends the region ─ next region, another work ─────────────────────────▶
//! ```

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{Posted, Queue, Team, deal};

/// A piece that is this many times later than one takes is done again, within these bounds.
const PATIENCE: u32 = 4;
const SHORTEST: Duration = Duration::from_micros(5);
const LONGEST: Duration = Duration::from_micros(200);

/// Turns of the waiting loop between two looks at the clock.
const LOOK: u32 = 16;

/// Flags on one cache line.
const FLAGS: usize = 64;

/// What a region of [`Team::pieces`] works on.
pub(crate) trait Pieces: Send + Sync + 'static {
    fn board(&self) -> &Board;

    /// Computes a piece. It may run more than once, at the same time too; it changes nothing but its results, and stores the same bits each time.
    fn piece(&self, piece: usize);
}

/// Who takes which piece, and which are done.
#[derive(Debug)]
pub(crate) struct Board {
    queues: Box<[Queue]>,
    /// `lines` for each queue.
    done: Box<[Line]>,
    lines: usize,
    pieces: usize,
}

/// Flags of pieces of one queue: no member writes to a line of another's before it helps it.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicBool; FLAGS]);

impl Board {
    /// For at most `most` pieces.
    pub(crate) fn new(members: usize, most: usize) -> Board {
        let lines = most.div_ceil(members).div_ceil(FLAGS);
        Board {
            queues: (0..members).map(|_| Queue::default()).collect(),
            done: (0..members * lines)
                .map(|_| Line(std::array::from_fn(|_| AtomicBool::new(false))))
                .collect(),
            lines,
            pieces: 0,
        }
    }

    /// Begins anew with `pieces` pieces, none of them done.
    pub(crate) fn reset(&mut self, pieces: usize) {
        let members = self.queues.len();
        assert!(
            pieces.div_ceil(members) <= self.lines * FLAGS,
            "no more pieces than the board was made for"
        );
        self.pieces = pieces;
        for (member, queue) in self.queues.iter_mut().enumerate() {
            *queue.next.get_mut() = pieces * member / members;
            *queue.end.get_mut() = pieces * (member + 1) / members;
        }
        for flag in self.done.iter_mut().flat_map(|line| &mut line.0) {
            *flag.get_mut() = false;
        }
    }

    fn done(&self, queue: usize, piece: usize) -> &AtomicBool {
        let index = piece - self.pieces * queue / self.queues.len();
        &self.done[queue * self.lines + index / FLAGS].0[index % FLAGS]
    }
}

/// Does pieces until all are taken; returns how many it did.
pub(super) fn take(work: &dyn Pieces, member: usize) -> u32 {
    let board = work.board();
    let mut count = 0;
    deal(&board.queues, member, |queue, piece| {
        work.piece(piece);
        board.done(queue, piece).store(true, Ordering::Release);
        count += 1;
    });
    count
}

/// Returns when all pieces are done, whoever may still be at one.
fn finish(work: &dyn Pieces) {
    let board = work.board();
    let began = Instant::now();
    let count = take(work, 0);
    let mut waiting: Option<(Instant, Duration)> = None;
    for (queue, last) in board.queues.iter().enumerate() {
        let first = board.pieces * queue / board.queues.len();
        for piece in first..last.end.load(Ordering::Relaxed) {
            let done = board.done(queue, piece);
            let mut turns = 0;
            while !done.load(Ordering::Acquire) {
                turns += 1;
                std::hint::spin_loop();
                if turns % LOOK != 0 {
                    continue;
                }
                let (since, patience) = *waiting.get_or_insert_with(|| {
                    let each = began.elapsed() / count.max(1);
                    (Instant::now(), (each * PATIENCE).clamp(SHORTEST, LONGEST))
                });
                if since.elapsed() >= patience {
                    work.piece(piece);
                    done.store(true, Ordering::Release);
                }
            }
        }
    }
}

impl Team {
    /// Has every piece of `work` done at least once; its board was just reset. A member may still be at a piece that was done again, and holds `work` until it has
    /// come out.
    pub(crate) fn pieces<P: Pieces>(&mut self, work: &Arc<P>) {
        let pieces = work.board().pieces;
        if self.handles.is_empty() || pieces <= 1 {
            (0..pieces).for_each(|piece| work.piece(piece));
            return;
        }
        let posted: Arc<dyn Pieces> = Arc::clone(work) as _;
        self.region(Posted::Shared(posted), || finish(&**work));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{
            Mutex,
            atomic::AtomicUsize,
            mpsc::{Receiver, Sender, channel},
        },
        thread,
    };

    use super::*;

    /// Squares, and a gate in front of the first piece of whoever is not the caller.
    struct Squares {
        board: Board,
        from: usize,
        squares: Vec<AtomicUsize>,
        gate: Option<Gate>,
    }

    struct Gate {
        caller: thread::ThreadId,
        entered: Mutex<Sender<usize>>,
        /// The caller does its first piece when a member has entered one.
        seen: Mutex<Receiver<usize>>,
        held: Mutex<Option<usize>>,
        open: Mutex<Option<Receiver<()>>>,
    }

    impl Squares {
        fn new(members: usize, pieces: usize) -> Squares {
            Squares {
                board: Board::new(members, pieces),
                from: 0,
                squares: (0..pieces).map(|_| AtomicUsize::new(0)).collect(),
                gate: None,
            }
        }

        fn fill(self: &mut Arc<Squares>, from: usize, pieces: usize) -> bool {
            let Some(own) = Arc::get_mut(self) else {
                return false;
            };
            own.board.reset(pieces);
            own.from = from;
            own.squares.iter_mut().for_each(|it| *it.get_mut() = 0);
            true
        }

        fn results(&self, pieces: usize) -> Vec<usize> {
            let load = |it: &AtomicUsize| it.load(Ordering::Relaxed);
            self.squares[..pieces].iter().map(load).collect()
        }
    }

    fn squares(from: usize, pieces: usize) -> Vec<usize> {
        (from..from + pieces).map(|n| n * n).collect()
    }

    impl Pieces for Squares {
        fn board(&self) -> &Board {
            &self.board
        }

        fn piece(&self, piece: usize) {
            if let Some(gate) = &self.gate {
                gate.pass(piece);
            }
            let n = self.from + piece;
            self.squares[piece].store(n * n, Ordering::Relaxed);
        }
    }

    impl Gate {
        /// With the sender that opens it.
        fn new() -> (Gate, Sender<()>) {
            let (entered, seen) = channel();
            let (open, opened) = channel();
            let gate = Gate {
                caller: thread::current().id(),
                entered: Mutex::new(entered),
                seen: Mutex::new(seen),
                held: Mutex::new(None),
                open: Mutex::new(Some(opened)),
            };
            (gate, open)
        }

        fn pass(&self, piece: usize) {
            if thread::current().id() == self.caller {
                let mut held = self.held.lock().unwrap();
                if held.is_none() {
                    *held = self.seen.lock().unwrap().recv().ok();
                }
                return;
            }
            let open = self.open.lock().unwrap().take();
            if let Some(open) = open {
                self.entered.lock().unwrap().send(piece).unwrap();
                open.recv().unwrap();
            }
        }
    }

    #[test]
    fn every_piece_is_done_in_thousands_of_regions() {
        let mut team = Team::new(4).unwrap();
        let mut works: Vec<_> = (0..4).map(|_| Arc::new(Squares::new(4, 300))).collect();
        for from in 0..3000 {
            let pieces = from * 7 % 301;
            // At most three members can be late.
            let free = works.iter_mut().position(|work| work.fill(from, pieces));
            let work = &works[free.unwrap()];
            team.pieces(work);
            assert_eq!(work.results(pieces), squares(from, pieces));
        }
    }

    #[test]
    fn a_member_that_lost_its_core_in_a_piece_holds_up_neither_this_region_nor_the_next_ones() {
        let mut team = Team::new(2).unwrap();
        let (gate, open) = Gate::new();
        let mut held = Arc::new(Squares::new(2, 9));
        Arc::get_mut(&mut held).unwrap().gate = Some(gate);
        assert!(held.fill(5, 9));

        team.pieces(&held);
        assert_eq!(held.results(9), squares(5, 9));

        // The member is still inside, so the work is not filled anew, and the team goes on with another and with regions of all kinds.
        assert!(!held.fill(0, 9));
        let mut other = Arc::new(Squares::new(2, 9));
        for from in 0..100 {
            assert!(other.fill(from, 9));
            team.pieces(&other);
            assert_eq!(other.results(9), squares(from, 9));
            let count = AtomicUsize::new(0);
            team.run(7, &|member, _| {
                assert_eq!(member, 0);
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 7);
        }

        open.send(()).unwrap();
        while !held.fill(6, 9) {
            thread::yield_now();
        }
        team.pieces(&held);
        assert_eq!(held.results(9), squares(6, 9));
    }

    #[test]
    fn a_panic_in_a_piece_reaches_the_caller_whoever_takes_it_first() {
        struct Panics(Board);
        impl Pieces for Panics {
            fn board(&self) -> &Board {
                &self.0
            }
            fn piece(&self, piece: usize) {
                assert_ne!(piece, 5, "on purpose");
            }
        }
        let mut team = Team::new(2).unwrap();
        let mut board = Board::new(2, 8);
        board.reset(8);
        let work = Arc::new(Panics(board));
        assert!(catch_unwind(AssertUnwindSafe(|| team.pieces(&work))).is_err());
        let mut next = Arc::new(Squares::new(2, 8));
        assert!(next.fill(1, 8));
        team.pieces(&next);
        assert_eq!(next.results(8), squares(1, 8));
    }
}
