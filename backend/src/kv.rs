//! The cache of keys and values, as the engine sees it: pages of [`PAGE_TOKENS`] tokens, held by sequences, by the tree of known prefixes, or by both.
//!
//! Invariants: a page that anyone holds is never handed out again; a page in the tree is never written; of a page that a sequence took from the tree all
//! ancestors are held too, so every page that only the tree holds can be freed, leaves first.

mod pages;
mod radix;
pub(crate) mod store;
#[cfg(test)]
mod tests;

pub(crate) use pages::{Counts, Page, PageList};
pub(crate) use radix::common_start;

use self::{pages::Pool, radix::Radix};
use crate::device::{Device, DeviceError, PAGE_TOKENS};

/// The pool of pages and the prefixes kept in it.
#[derive(Debug)]
pub(crate) struct Cache {
    pool: Pool,
    tree: Radix,
    evictions: u64,
}

impl Cache {
    pub(crate) fn new(pages: usize) -> Cache {
        Cache {
            pool: Pool::new(pages),
            tree: Radix::default(),
            evictions: 0,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.pool.counts()
    }

    /// Cached pages given up for new ones so far.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// An unused page, if need be the least recently used one of the tree. `None`: sequences hold them all.
    pub(crate) fn take(&mut self) -> Option<Page> {
        if let Some(page) = self.pool.take() {
            return Some(page);
        }
        if !self.tree.evict() {
            return None;
        }
        self.evictions += 1;
        self.pool.take()
    }

    /// Makes `pages` long enough for `tokens` tokens; false, with what there was, when pages run out.
    pub(crate) fn extend(&mut self, pages: &mut PageList, tokens: usize) -> bool {
        while pages.len() * PAGE_TOKENS < tokens {
            let Some(page) = self.take() else {
                return false;
            };
            pages.push(page);
        }
        true
    }

    /// The longest known prefix of `tokens`, in pages ready to be read. Of a page that is known in part, that part is copied to a page of its own, which
    /// may be written after it. Gives the pages and the tokens they hold.
    pub(crate) fn adopt(
        &mut self,
        device: &mut dyn Device,
        tokens: &[u32],
    ) -> Result<(PageList, usize), DeviceError> {
        let found = self.tree.find(tokens);
        let mut known = found.pages.len() * PAGE_TOKENS;
        let mut pages = PageList::default();
        for page in found.pages {
            pages.push(page);
        }
        // `partial` stays held while a page is found for the copy, so it cannot be the one that is evicted.
        if let Some((partial, length)) = found.partial
            && let Some(own) = self.take()
        {
            device.copy_page(partial.id(), own.id(), length)?;
            pages.push(own);
            known += length;
        }
        Ok((pages, known))
    }

    /// The whole pages of the longest known prefix of `tokens`.
    pub(crate) fn whole(&mut self, tokens: &[u32]) -> PageList {
        let mut pages = PageList::default();
        for page in self.tree.find(tokens).pages {
            pages.push(page);
        }
        pages
    }

    /// How many whole pages of a prefix of `tokens` are in the tree, and how many of these some sequence holds.
    pub(crate) fn known(&self, tokens: &[u32]) -> (usize, usize) {
        self.tree.known(tokens)
    }

    /// Keeps pages for later: `tokens` are what `pages` hold. Where the tree has the same tokens already, its page takes the place of the one in the list.
    /// Pages that the list's owner goes on writing must not be among them.
    pub(crate) fn keep(&mut self, tokens: &[u32], pages: &mut PageList) {
        self.tree.insert(tokens, pages);
    }

    /// Forgets all that no sequence holds.
    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        while self.tree.evict() {}
    }
}
