//! Disjoint parts of a slice, for members of a team that write them at the same time.

use std::marker::PhantomData;

/// A slice that members write in disjoint parts.
pub(super) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: it only hands out parts under the contract of `range`; `T: Send` lets another thread have them.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Parts<'a, T> {
        Parts {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            slice: PhantomData,
        }
    }

    /// # Safety
    /// No two parts that are alive at the same time overlap.
    #[expect(
        clippy::mut_from_ref,
        reason = "the borrow is of the slice, and callers keep parts apart"
    )]
    pub(super) unsafe fn range(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: inside the slice that is mutably borrowed for `'a`; the caller keeps parts apart.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

/// Some neighbouring columns of a matrix, the same in every row, for one member alone.
pub(crate) struct Stripe<'a, T> {
    /// Number of the stripe in its range.
    pub(crate) index: usize,
    /// First column.
    pub(super) start: usize,
    pub(super) width: usize,
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) parts: &'a Parts<'a, T>,
}

impl<T> Stripe<'_, T> {
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows);
        // SAFETY: stripes are disjoint columns, each is made once a region, and `&mut self` keeps the rows of this one apart.
        unsafe {
            self.parts
                .range(row * self.columns + self.start, self.width)
        }
    }
}
