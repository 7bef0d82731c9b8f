//! The thread team: one parallel region an operation, a few hundred regions a token.
//!
//! A region is a number of chunks. Every member of the team first takes the chunks of its own contiguous share (so that it streams through memory), then
//! helps the others with theirs. The caller is a member and never waits for one that has not begun: when another process takes a core, the region
//! takes as long as the rest of the team needs, and no barrier waits for the scheduler. Members spin for some microseconds between regions, then park.
//!
//! Invariant: a member touches the job only while it is counted in `state`; the caller returns from [`Team::run`] only when the region is closed and the count
//! is zero. All `unsafe` outside `cpu/simd` is here and in `parts`: the borrowed job, and the disjoint parts of a slice that the members write.

use std::{
    cell::UnsafeCell,
    fmt,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
};

mod parts;

use parts::{Parts, Stripe};

use super::simd::LANES;

/// Turns of the spin loop before a member parks: some tens of microseconds, longer than the serial part between two regions of a step.
const SPINS: u32 = 4_000;
/// Turns before the caller, which waits for the last chunks, offers its core to the members that run them. More than [`SPINS`]: a member that was taken
/// off its core is rare, and giving this one away costs a step more than waiting does.
const CALLER_SPINS: u32 = 20_000;

/// Bits of `Shared::state`: members inside the region, the region takes members, the team ends; above them the number of the region.
const ACTIVE: u64 = 0xffff;
const OPEN: u64 = 1 << 16;
const STOP: u64 = 1 << 17;
const REGION: u64 = 1 << 18;

type Job<'a> = dyn Fn(usize, usize) + Sync + 'a;

pub(crate) struct Team {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

struct Shared {
    state: AtomicU64,
    job: UnsafeCell<Option<*const Job<'static>>>,
    queues: Box<[Queue]>,
    parked: Box<[AtomicBool]>,
    panicked: AtomicBool,
}

// SAFETY: `job` is the only part that is not `Sync` by itself. It is written by the caller while no member is counted in `state`, and read by members
// while they are; the pointee is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is only followed under that protocol.
unsafe impl Send for Shared {}

/// A member's share of the chunks. On its own cache line.
#[repr(align(128))]
struct Queue {
    next: AtomicUsize,
    end: AtomicUsize,
}

impl Team {
    /// A team of `threads` members, the caller of [`Team::run`] among them.
    pub(crate) fn new(threads: usize) -> std::io::Result<Team> {
        let threads = threads.clamp(1, 1024);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            queues: (0..threads)
                .map(|_| Queue {
                    next: AtomicUsize::new(0),
                    end: AtomicUsize::new(0),
                })
                .collect(),
            parked: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            panicked: AtomicBool::new(false),
        });
        let mut team = Team {
            shared,
            handles: Vec::new(),
        };
        for member in 1..threads {
            let shared = Arc::clone(&team.shared);
            team.handles.push(
                thread::Builder::new()
                    .name(format!("cpu-{member}"))
                    .spawn(move || shared.serve(member))?,
            );
        }
        Ok(team)
    }

    pub(crate) fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `job(member, chunk)` once for every chunk in `0..chunks`; returns when all calls have returned. `member < self.threads()`, and no two calls of one
    /// region run at the same time with the same member.
    pub(crate) fn run(&mut self, chunks: usize, job: &Job<'_>) {
        if self.handles.is_empty() || chunks <= 1 {
            (0..chunks).for_each(|chunk| job(0, chunk));
            return;
        }
        let shared = &*self.shared;
        let members = shared.queues.len();
        for (member, queue) in shared.queues.iter().enumerate() {
            queue
                .next
                .store(chunks * member / members, Ordering::Relaxed);
            queue
                .end
                .store(chunks * (member + 1) / members, Ordering::Relaxed);
        }
        // SAFETY: the last region is closed and left by all members, so nobody reads `job` now. Its lifetime is extended only until this function has
        // closed the region and seen the last member leave, below, on every path.
        unsafe {
            *shared.job.get() = Some(std::mem::transmute::<*const Job<'_>, *const Job<'static>>(
                job,
            ));
        }
        let region = shared.state.load(Ordering::Relaxed) & !(REGION - 1);
        shared
            .state
            .store(region.wrapping_add(REGION) | OPEN, Ordering::SeqCst);
        for (parked, handle) in shared.parked[1..].iter().zip(&self.handles) {
            if parked.load(Ordering::SeqCst) {
                Thread::unpark(handle.thread());
            }
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| shared.work(0, job)));
        shared.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0u32;
        while shared.state.load(Ordering::Acquire) & ACTIVE != 0 {
            spins = spins.saturating_add(1);
            if spins < CALLER_SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        assert!(
            !shared.panicked.swap(false, Ordering::Relaxed),
            "a member of the thread team panicked"
        );
    }

    /// Calls `job(row, part)` for the first `rows` rows of a matrix of `stride` numbers a row.
    pub(crate) fn rows<T: Send>(
        &mut self,
        matrix: &mut [T],
        stride: usize,
        rows: usize,
        per_chunk: usize,
        job: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let mut none = vec![(); self.threads()];
        self.rows_with(
            matrix,
            stride,
            rows,
            per_chunk,
            &mut none,
            |(), row, part| job(row, part),
        );
    }

    /// As [`Team::rows`], and every member has a scratch of its own.
    pub(crate) fn rows_with<T: Send, S: Send>(
        &mut self,
        matrix: &mut [T],
        stride: usize,
        rows: usize,
        per_chunk: usize,
        scratch: &mut [S],
        job: impl Fn(&mut S, usize, &mut [T]) + Sync,
    ) {
        assert!(scratch.len() >= self.threads(), "a scratch for each member");
        assert!(rows * stride <= matrix.len(), "rows lie in the matrix");
        let per_chunk = per_chunk.max(1);
        let parts = Parts::new(matrix);
        let scratch = Parts::new(scratch);
        self.run(rows.div_ceil(per_chunk), &|member, chunk| {
            // SAFETY: `run` never runs two calls with the same member at the same time.
            let own = unsafe { &mut scratch.range(member, 1)[0] };
            for row in chunk * per_chunk..rows.min((chunk + 1) * per_chunk) {
                // SAFETY: row ranges are disjoint and every row belongs to one chunk, which `run` hands out once.
                job(own, row, unsafe { parts.range(row * stride, stride) });
            }
        });
    }

    /// Calls `job(row, part, other)` for the first `rows` rows of two matrices.
    #[expect(clippy::too_many_arguments, reason = "two matrices with their strides")]
    pub(crate) fn rows_two<T: Send, U: Send>(
        &mut self,
        matrix: &mut [T],
        stride: usize,
        other: &mut [U],
        other_stride: usize,
        rows: usize,
        per_chunk: usize,
        job: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        assert!(rows * other_stride <= other.len(), "rows lie in the matrix");
        let other = Parts::new(other);
        self.rows(matrix, stride, rows, per_chunk, |row, part| {
            // SAFETY: `rows` hands every row out once, and row ranges are disjoint.
            job(row, part, unsafe {
                other.range(row * other_stride, other_stride)
            });
        });
    }

    /// Calls `job(scratch, stripe)` for all stripes of [`LANES`] columns in `range`, of a row-major matrix of `columns` columns; the last may be narrower.
    /// Every member has a scratch of its own.
    pub(crate) fn stripes<T: Send, S: Send>(
        &mut self,
        matrix: &mut [T],
        columns: usize,
        range: Range<usize>,
        per_chunk: usize,
        scratch: &mut [S],
        job: impl Fn(&mut S, Stripe<'_, T>) + Sync,
    ) {
        assert!(scratch.len() >= self.threads(), "a scratch for each member");
        assert!(range.end <= columns, "stripes lie in the matrix");
        let rows = matrix.len() / columns;
        let stripes = range.len().div_ceil(LANES);
        let per_chunk = per_chunk.max(1);
        let parts = Parts::new(matrix);
        let scratch = Parts::new(scratch);
        self.run(stripes.div_ceil(per_chunk), &|member, chunk| {
            // SAFETY: `run` never runs two calls with the same member at the same time.
            let own = unsafe { &mut scratch.range(member, 1)[0] };
            for index in chunk * per_chunk..stripes.min((chunk + 1) * per_chunk) {
                let start = range.start + index * LANES;
                let stripe = Stripe {
                    index,
                    start,
                    width: LANES.min(range.end - start),
                    columns,
                    rows,
                    parts: &parts,
                };
                job(own, stripe);
            }
        });
    }

    /// Calls `job(scratch, item, part)` for parts `[start, start + len)` of a slice, which must not overlap and come in ascending order.
    pub(crate) fn parts<T: Send, S: Send>(
        &mut self,
        slice: &mut [T],
        ranges: &[(usize, usize)],
        scratch: &mut [S],
        job: impl Fn(&mut S, usize, &mut [T]) + Sync,
    ) {
        assert!(scratch.len() >= self.threads(), "a scratch for each member");
        let mut end = 0;
        for &(start, len) in ranges {
            assert!(
                start >= end && start + len <= slice.len(),
                "parts are disjoint and inside the slice"
            );
            end = start + len;
        }
        let parts = Parts::new(slice);
        let scratch = Parts::new(scratch);
        self.run(ranges.len(), &|member, item| {
            // SAFETY: `run` never runs two calls with the same member at the same time.
            let own = unsafe { &mut scratch.range(member, 1)[0] };
            let (start, len) = ranges[item];
            // SAFETY: the ranges were checked to be disjoint, and each is handed out once.
            job(own, item, unsafe { parts.range(start, len) });
        });
    }
}

impl Shared {
    /// Takes chunks until none is left, its own share first.
    fn work(&self, member: usize, job: &Job<'_>) {
        let members = self.queues.len();
        for turn in 0..members {
            let queue = &self.queues[(member + turn) % members];
            let end = queue.end.load(Ordering::Relaxed);
            // The load keeps helpers from writing to a line whose owner still needs it.
            while queue.next.load(Ordering::Relaxed) < end {
                let chunk = queue.next.fetch_add(1, Ordering::Relaxed);
                if chunk >= end {
                    break;
                }
                job(member, chunk);
            }
        }
    }

    fn serve(&self, member: usize) {
        let mut seen = 0;
        while let Some(region) = self.enter(member, seen) {
            seen = region;
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                // SAFETY: this member is counted in `state`, so the caller is still inside `run` and the job it borrowed is alive.
                if let Some(job) = unsafe { *self.job.get() } {
                    // SAFETY: as above.
                    self.work(member, unsafe { &*job });
                }
            }));
            if outcome.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an open region after `seen` and joins it; `None` when the team ends.
    fn enter(&self, member: usize, seen: u64) -> Option<u64> {
        let mut spins = 0;
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if state & STOP != 0 {
                return None;
            }
            let region = state / REGION;
            if state & OPEN != 0 && region != seen {
                if self
                    .state
                    .compare_exchange(state, state + 1, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
                {
                    return Some(region);
                }
                continue;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            // The caller reads the flag after it has opened a region; the state is read again after the flag is set. One of the two sees the other.
            self.parked[member].store(true, Ordering::SeqCst);
            let now = self.state.load(Ordering::SeqCst);
            if now & STOP == 0 && (now & OPEN == 0 || now / REGION == seen) {
                thread::park();
            }
            self.parked[member].store(false, Ordering::SeqCst);
            spins = 0;
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.state.fetch_or(STOP, Ordering::SeqCst);
        for handle in self.handles.drain(..) {
            handle.thread().unpark();
            // A member that panicked has said so already.
            let _ = handle.join();
        }
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team")
            .field("threads", &self.threads())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_runs_once_in_thousands_of_regions() {
        let mut team = Team::new(4).unwrap();
        for chunks in (0..3000).map(|region| region % 37) {
            let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
            team.run(chunks, &|member, chunk| {
                assert!(member < 4);
                counts[chunk].fetch_add(1, Ordering::Relaxed);
            });
            assert!(
                counts
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) == 1)
            );
        }
    }

    #[test]
    fn stripes_cover_a_matrix_whose_width_is_no_multiple() {
        let mut team = Team::new(3).unwrap();
        let mut matrix = vec![0usize; 5 * 37];
        team.stripes(
            &mut matrix,
            37,
            0..37,
            1,
            &mut [(), (), ()],
            |(), mut stripe| {
                for row in 0..5 {
                    let start = stripe.index * 16;
                    for (i, value) in stripe.row(row).iter_mut().enumerate() {
                        *value += row * 37 + start + i;
                    }
                }
            },
        );
        assert_eq!(matrix, (0..5 * 37).collect::<Vec<_>>());
    }

    #[test]
    fn members_without_work_park_and_wake_for_the_next_region() {
        let mut team = Team::new(3).unwrap();
        for _ in 0..20 {
            let shared = Arc::clone(&team.shared);
            while !shared.parked[1..]
                .iter()
                .all(|parked| parked.load(Ordering::SeqCst))
            {
                thread::yield_now();
            }
            let count = AtomicUsize::new(0);
            team.run(30, &|_, _| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 30);
        }
    }

    #[test]
    fn a_panic_in_a_chunk_reaches_the_caller_and_the_team_goes_on() {
        let mut team = Team::new(3).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            team.run(30, &|_, chunk| assert_ne!(chunk, 17, "on purpose"));
        }));
        assert!(panicked.is_err());
        let count = AtomicUsize::new(0);
        team.run(30, &|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 30);
    }
}
