//! Who holds which page: reference counts that go down by themselves. Handles belong to the engine's thread.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use crate::device::PageId;

/// All pages of the device, free ones in a list.
#[derive(Clone, Debug)]
pub(super) struct Pool(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    states: Box<[Cell<State>]>,
    free: RefCell<Vec<PageId>>,
    /// Pages that only the tree holds.
    cached: Cell<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    holders: u32,
    /// One of the holders is the tree.
    in_tree: bool,
}

impl State {
    fn is_cached(self) -> bool {
        self.in_tree && self.holders == 1
    }
}

/// Pages by who holds them; together all there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) free: usize,
    /// Held by the tree alone: free as soon as they are needed.
    pub(crate) cached: usize,
    /// Held by sequences.
    pub(crate) used: usize,
}

impl Counts {
    /// Pages that could be handed out.
    pub(crate) fn available(self) -> usize {
        self.free + self.cached
    }
}

impl Pool {
    pub(super) fn new(pages: usize) -> Pool {
        Pool(Rc::new(Inner {
            states: (0..pages).map(|_| Cell::default()).collect(),
            // The lowest page is handed out first.
            free: RefCell::new((0..pages as u32).rev().map(PageId).collect()),
            cached: Cell::new(0),
        }))
    }

    pub(super) fn take(&self) -> Option<Page> {
        let id = self.0.free.borrow_mut().pop()?;
        self.0.change(id, |state| state.holders = 1);
        Some(Page {
            id,
            pool: self.0.clone(),
        })
    }

    pub(super) fn counts(&self) -> Counts {
        let free = self.0.free.borrow().len();
        let cached = self.0.cached.get();
        Counts {
            free,
            cached,
            used: self.0.states.len() - free - cached,
        }
    }
}

impl Inner {
    fn change(&self, id: PageId, change: impl FnOnce(&mut State)) -> State {
        let cell = &self.states[id.0 as usize];
        let before = cell.get();
        let mut after = before;
        change(&mut after);
        cell.set(after);
        let cached = self.cached.get() + usize::from(after.is_cached());
        self.cached.set(cached - usize::from(before.is_cached()));
        after
    }
}

/// A share in a page. When the last is dropped the page is free.
#[derive(Debug)]
pub(crate) struct Page {
    id: PageId,
    pool: Rc<Inner>,
}

impl Page {
    pub(crate) fn id(&self) -> PageId {
        self.id
    }

    /// Is this the only share?
    pub(crate) fn is_sole(&self) -> bool {
        self.pool.states[self.id.0 as usize].get().holders == 1
    }

    /// Another share, held by the tree.
    pub(super) fn share_with_tree(&self) -> TreePage {
        let page = self.clone();
        page.pool.change(page.id, |state| state.in_tree = true);
        TreePage(page)
    }
}

impl Clone for Page {
    fn clone(&self) -> Page {
        self.pool.change(self.id, |state| state.holders += 1);
        Page {
            id: self.id,
            pool: self.pool.clone(),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let state = self.pool.change(self.id, |state| state.holders -= 1);
        if state.holders == 0 {
            self.pool.free.borrow_mut().push(self.id);
        }
    }
}

/// The tree's share in a page; a page has at most one.
#[derive(Debug)]
pub(super) struct TreePage(Page);

impl TreePage {
    pub(super) fn page(&self) -> &Page {
        &self.0
    }
}

impl Drop for TreePage {
    fn drop(&mut self) {
        let page = &self.0;
        page.pool.change(page.id, |state| state.in_tree = false);
    }
}

/// The page table of a sequence: page `i` holds positions `16 i..16 (i + 1)`.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageList {
    pages: Vec<Page>,
    /// The same pages as the device wants them.
    ids: Vec<PageId>,
}

impl PageList {
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn ids(&self) -> &[PageId] {
        &self.ids
    }

    pub(crate) fn push(&mut self, page: Page) {
        self.ids.push(page.id);
        self.pages.push(page);
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Page> {
        self.pages.get(index)
    }

    pub(super) fn replace(&mut self, index: usize, page: Page) {
        self.ids[index] = page.id;
        self.pages[index] = page;
    }

    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.pages.clear();
    }

    /// Shares in the first `count` pages.
    pub(crate) fn first(&self, count: usize) -> PageList {
        PageList {
            pages: self.pages[..count].to_vec(),
            ids: self.ids[..count].to_vec(),
        }
    }
}
