//! The tree of known prefixes: a node holds one page, an edge is the exact tokens of that page. Only a leaf may hold fewer than a page's tokens.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use super::pages::{Page, PageList, TreePage};
use crate::device::PAGE_TOKENS;

type NodeId = usize;

/// Children are found by the tokens of their page. In this order the ones with the longest common start are next to each other.
type Children = BTreeMap<Box<[u32]>, NodeId>;

#[derive(Debug, Default)]
pub(super) struct Radix {
    nodes: Vec<Option<Node>>,
    unused: Vec<NodeId>,
    root: Children,
    /// Leaves by when they were last used, longest ago first.
    leaves: BTreeSet<(u64, NodeId)>,
    now: u64,
}

#[derive(Debug)]
struct Node {
    /// At most [`PAGE_TOKENS`]; fewer only without children.
    tokens: Box<[u32]>,
    page: TreePage,
    parent: Option<NodeId>,
    children: Children,
    used: u64,
}

/// The longest known prefix.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Whole pages.
    pub(super) pages: Vec<Page>,
    /// The page after them and how many of its tokens, at least one, go on with the prefix.
    pub(super) partial: Option<(Page, usize)>,
}

impl Radix {
    /// Looks up and marks as used.
    pub(super) fn find(&mut self, tokens: &[u32]) -> Found {
        self.now += 1;
        let mut found = Found::default();
        let mut at = None;
        let mut chunks = tokens.chunks(PAGE_TOKENS);
        let rest = loop {
            let Some(chunk) = chunks.next() else {
                return found;
            };
            let Some(&child) = self.whole_child(at, chunk) else {
                break chunk;
            };
            self.touch(child);
            found.pages.push(self.node(child).page.page().clone());
            at = Some(child);
        };
        if let Some((child, length)) = self.closest_child(at, rest) {
            self.touch(child);
            found.partial = Some((self.node(child).page.page().clone(), length));
        }
        found
    }

    /// Whole pages known, and how many of them a sequence holds.
    pub(super) fn known(&self, tokens: &[u32]) -> (usize, usize) {
        let mut at = None;
        let (mut known, mut held) = (0, 0);
        for chunk in tokens.chunks_exact(PAGE_TOKENS) {
            let Some(&child) = self.whole_child(at, chunk) else {
                break;
            };
            known += 1;
            held += usize::from(!self.node(child).page.page().is_sole());
            at = Some(child);
        }
        (known, held)
    }

    pub(super) fn insert(&mut self, tokens: &[u32], pages: &mut PageList) {
        self.now += 1;
        let mut at = None;
        for (index, chunk) in tokens.chunks(PAGE_TOKENS).enumerate() {
            let Some(page) = pages.get(index) else {
                return;
            };
            if let Some(&child) = self.children(at).get(chunk) {
                self.touch(child);
                let known = self.node(child).page.page();
                if known.id() != page.id() {
                    pages.replace(index, known.clone());
                }
                at = Some(child);
                continue;
            }
            let closest = self.closest_child(at, chunk);
            if closest.is_some_and(|(_, length)| length == chunk.len()) {
                // The chunk ends inside a page that is known: nothing new.
                return;
            }
            let page = page.share_with_tree();
            self.remove_shorter(at, chunk);
            at = Some(self.add(at, chunk, page));
        }
    }

    /// Frees the least recently used page that no sequence holds.
    pub(super) fn evict(&mut self) -> bool {
        let free = |&&(_, leaf): &&(u64, NodeId)| self.node(leaf).page.page().is_sole();
        match self.leaves.iter().find(free) {
            Some(&(_, leaf)) => {
                self.remove(leaf);
                true
            }
            None => false,
        }
    }

    /// A leaf whose tokens only begin `chunk` is of no more use beside it.
    fn remove_shorter(&mut self, parent: Option<NodeId>, chunk: &[u32]) {
        let below = (Bound::Unbounded, Bound::Excluded(chunk));
        let before = self.children(parent).range::<[u32], _>(below).next_back();
        if let Some((tokens, &child)) = before
            && chunk.starts_with(tokens)
            && self.node(child).page.page().is_sole()
        {
            self.remove(child);
        }
    }

    fn add(&mut self, parent: Option<NodeId>, tokens: &[u32], page: TreePage) -> NodeId {
        let node = Node {
            tokens: tokens.into(),
            page,
            parent,
            children: Children::new(),
            used: self.now,
        };
        let id = self.unused.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() - 1
        });
        self.nodes[id] = Some(node);
        if let Some(parent) = parent {
            let used = self.node(parent).used;
            self.leaves.remove(&(used, parent));
        }
        self.children_mut(parent).insert(tokens.into(), id);
        self.leaves.insert((self.now, id));
        id
    }

    /// Removes a leaf.
    fn remove(&mut self, id: NodeId) {
        let Some(node) = self.nodes[id].take() else {
            return;
        };
        self.unused.push(id);
        self.leaves.remove(&(node.used, id));
        self.children_mut(node.parent).remove(&node.tokens);
        if let Some(parent) = node.parent
            && self.node(parent).children.is_empty()
        {
            let used = self.node(parent).used;
            self.leaves.insert((used, parent));
        }
    }

    fn touch(&mut self, id: NodeId) {
        let now = self.now;
        let node = self.node_mut(id);
        let before = std::mem::replace(&mut node.used, now);
        if self.leaves.remove(&(before, id)) {
            self.leaves.insert((now, id));
        }
    }

    fn whole_child(&self, parent: Option<NodeId>, chunk: &[u32]) -> Option<&NodeId> {
        (chunk.len() == PAGE_TOKENS)
            .then(|| self.children(parent).get(chunk))
            .flatten()
    }

    /// The child with the longest common start with `chunk`, and its length, at least 1.
    fn closest_child(&self, parent: Option<NodeId>, chunk: &[u32]) -> Option<(NodeId, usize)> {
        let children = self.children(parent);
        let below = (Bound::Unbounded, Bound::Excluded(chunk));
        let above = (Bound::Included(chunk), Bound::Unbounded);
        let neighbours = [
            children.range::<[u32], _>(below).next_back(),
            children.range::<[u32], _>(above).next(),
        ];
        neighbours
            .into_iter()
            .flatten()
            .map(|(tokens, &id)| (id, common_start(tokens, chunk)))
            .max_by_key(|&(_, length)| length)
            .filter(|&(_, length)| length > 0)
    }

    fn children(&self, parent: Option<NodeId>) -> &Children {
        parent.map_or(&self.root, |id| &self.node(id).children)
    }

    fn children_mut(&mut self, parent: Option<NodeId>) -> &mut Children {
        match parent {
            None => &mut self.root,
            Some(id) => &mut self.node_mut(id).children,
        }
    }

    #[expect(clippy::expect_used, reason = "ids come from the tree itself")]
    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id].as_ref().expect("a linked node exists")
    }

    #[expect(clippy::expect_used, reason = "ids come from the tree itself")]
    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id].as_mut().expect("a linked node exists")
    }
}

/// How many tokens two lists share at their start.
pub(crate) fn common_start(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
