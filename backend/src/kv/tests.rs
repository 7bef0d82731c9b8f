use std::collections::{HashMap, HashSet};

use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;
use crate::device::{Caps, PageId, SampleRow, Span};
use crate::sample::Sampled;

/// Remembers, page by page, the whole prefix up to each token that was written there.
#[derive(Debug, Default)]
struct Memory {
    slots: HashMap<(PageId, usize), Vec<u32>>,
    copies: usize,
}

impl Memory {
    /// Writes positions `from..tokens.len()`.
    fn write(&mut self, pages: &PageList, tokens: &[u32], from: usize) {
        for position in from..tokens.len() {
            let page = pages.get(position / PAGE_TOKENS).unwrap();
            assert!(page.is_sole(), "a shared page is written");
            let slot = (page.id(), position % PAGE_TOKENS);
            self.slots.insert(slot, tokens[..=position].to_vec());
        }
    }

    fn check(&self, pages: &PageList, tokens: &[u32]) {
        for position in 0..tokens.len() {
            let page = pages.get(position / PAGE_TOKENS).unwrap();
            let slot = self.slots.get(&(page.id(), position % PAGE_TOKENS));
            assert_eq!(slot.map(Vec::as_slice), Some(&tokens[..=position]));
        }
    }
}

impl Device for Memory {
    fn caps(&self) -> &Caps {
        unreachable!()
    }
    fn forward(&mut self, _: &[Span<'_>]) -> Result<(), DeviceError> {
        unreachable!()
    }
    fn sample(&mut self, _: &[SampleRow<'_>], _: &mut Vec<Sampled>) -> Result<(), DeviceError> {
        unreachable!()
    }
    fn logits(&mut self, _: usize, _: &mut [f32]) -> Result<(), DeviceError> {
        unreachable!()
    }
    fn copy_page(&mut self, from: PageId, to: PageId, tokens: usize) -> Result<(), DeviceError> {
        assert_ne!(from, to);
        for slot in 0..tokens {
            let value = self.slots[&(from, slot)].clone();
            self.slots.insert((to, slot), value);
        }
        self.copies += 1;
        Ok(())
    }
    fn read_page(&mut self, _: PageId, _: &mut [u8]) -> Result<(), DeviceError> {
        unreachable!()
    }
    fn write_page(&mut self, _: PageId, _: &[u8]) -> Result<(), DeviceError> {
        unreachable!()
    }
}

/// Runs a sequence as the engine would: adopts, computes the rest, keeps all. `None` when pages run out.
fn run(cache: &mut Cache, memory: &mut Memory, tokens: &[u32]) -> Option<(PageList, usize)> {
    let (mut pages, known) = cache.adopt(memory, tokens).unwrap();
    memory.check(&pages, &tokens[..known]);
    if !cache.extend(&mut pages, tokens.len()) {
        return None;
    }
    memory.write(&pages, tokens, known);
    cache.keep(tokens, &mut pages);
    memory.check(&pages, tokens);
    Some((pages, known))
}

fn counts(cache: &Cache) -> (usize, usize, usize) {
    let Counts { free, cached, used } = cache.counts();
    (free, cached, used)
}

#[test]
fn a_known_prefix_is_found_to_the_token_and_its_last_page_is_copied() {
    let (mut cache, mut memory) = (Cache::new(8), Memory::default());
    let first: Vec<u32> = (0..40).collect();
    drop(run(&mut cache, &mut memory, &first).unwrap());
    assert_eq!(counts(&cache), (5, 3, 0));
    let mut second = first.clone();
    second[37] = 99;
    let (pages, known) = run(&mut cache, &mut memory, &second).unwrap();
    assert_eq!((known, memory.copies), (37, 1));
    // Two pages are shared; the third is the copy.
    assert_eq!(counts(&cache), (4, 1, 3));
    drop(pages);
    assert_eq!(counts(&cache), (4, 4, 0));
    // The original was not touched by the copy's owner.
    assert_eq!(run(&mut cache, &mut memory, &first).unwrap().1, 40);
    cache.clear();
    assert_eq!(counts(&cache), (8, 0, 0));
}

#[test]
fn eviction_takes_the_least_recently_used_leaf_and_nothing_that_is_held() {
    let (mut cache, mut memory) = (Cache::new(6), Memory::default());
    let sequence = |start: u32| (start..start + 32).collect::<Vec<u32>>();
    let (a, b, c) = (sequence(0), sequence(100), sequence(200));
    drop(run(&mut cache, &mut memory, &a).unwrap());
    drop(run(&mut cache, &mut memory, &b).unwrap());
    let held = run(&mut cache, &mut memory, &c).unwrap();
    drop(run(&mut cache, &mut memory, &a).unwrap());
    // `b` is the oldest: its second page goes, then its first, then the second of `a`.
    let mut taken = vec![cache.take().unwrap()];
    assert_eq!((cache.known(&a), cache.known(&b)), ((2, 0), (1, 0)));
    taken.push(cache.take().unwrap());
    assert_eq!((cache.known(&a), cache.known(&b)), ((2, 0), (0, 0)));
    taken.push(cache.take().unwrap());
    assert_eq!((cache.known(&a), cache.known(&c)), ((1, 0), (2, 2)));
    taken.push(cache.take().unwrap());
    assert!(cache.take().is_none());
    assert_eq!((counts(&cache), cache.evictions()), ((0, 0, 6), 4));
    drop((taken, held));
    assert_eq!(counts(&cache), (4, 2, 0));
}

#[test]
fn a_page_computed_twice_is_held_once() {
    let (mut cache, mut memory) = (Cache::new(4), Memory::default());
    let tokens: Vec<u32> = (0..32).collect();
    let mut twins = [PageList::default(), PageList::default()];
    for pages in &mut twins {
        assert!(cache.extend(pages, 32));
        memory.write(pages, &tokens, 0);
    }
    assert_eq!(counts(&cache), (0, 0, 4));
    for pages in &mut twins {
        cache.keep(&tokens, pages);
    }
    assert_eq!(twins[0].ids(), twins[1].ids());
    assert_eq!(counts(&cache), (2, 0, 2));
}

#[derive(Clone, Debug)]
enum Act {
    /// Runs a sequence made of a few alternatives a position, so that prefixes meet, and holds its pages.
    Run { length: usize, seed: u64 },
    /// Lets go of one of the held sequences.
    Release(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let run = (1usize..80, any::<u64>()).prop_map(|(length, seed)| Act::Run { length, seed });
    prop::collection::vec(
        prop_oneof![2 => run, 1 => any::<usize>().prop_map(Act::Release)],
        1..120,
    )
}

/// A tree of few branches: the token at each place is one of two, rarely the second.
fn tokens(length: usize, seed: u64) -> Vec<u32> {
    let bit = |place: usize| seed >> (place % 61) & seed >> (place % 53) & seed >> (place % 47) & 1;
    (0..length)
        .map(|place| place as u32 * 2 + bit(place) as u32)
        .collect()
}

proptest! {
    #[test]
    fn the_tree_finds_what_a_naive_map_finds_and_gives_back_every_page(
        acts in acts(),
        pages in 6usize..60,
    ) {
        let (mut cache, mut memory) = (Cache::new(pages), Memory::default());
        let mut held: Vec<PageList> = Vec::new();
        let mut prefixes: HashSet<Vec<u32>> = HashSet::new();
        for act in acts {
            match act {
                Act::Run { length, seed } => {
                    let tokens = tokens(length, seed);
                    let found = run(&mut cache, &mut memory, &tokens);
                    if cache.evictions() == 0 {
                        let naive = (1..=length).rev().find(|&n| prefixes.contains(&tokens[..n]));
                        if let Some((_, known)) = &found {
                            prop_assert_eq!(*known, naive.unwrap_or(0));
                        }
                    }
                    if let Some((pages, _)) = found {
                        prefixes.extend((1..=length).map(|n| tokens[..n].to_vec()));
                        held.push(pages);
                    } else {
                        // Only what is held can be in the way.
                        prop_assert_eq!(cache.counts().used + cache.counts().available(), pages);
                        prop_assert!(cache.counts().used + length.div_ceil(PAGE_TOKENS) > pages);
                    }
                }
                Act::Release(which) if !held.is_empty() => {
                    let which = which % held.len();
                    drop(held.swap_remove(which));
                }
                Act::Release(_) => {}
            }
            let distinct: HashSet<PageId> = held.iter().flat_map(|p| p.ids()).copied().collect();
            prop_assert_eq!(cache.counts().used, distinct.len());
        }
        held.clear();
        cache.clear();
        prop_assert_eq!(counts(&cache), (pages, 0, 0));
    }
}
