//! Warm start: pages of stable prefixes on their way to and from the disk. A thread of its own reads and writes the files; the engine's thread only copies a
//! few pages a step, and gives up what it has lent as soon as a sequence needs the pages.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

use super::{WarmStart, sequence::Sequence, shared::Shared};
use crate::{
    device::{Caps, Device, DeviceError, PAGE_TOKENS},
    kv::{
        Cache, PageList,
        store::{Index, Key, Store, Writer},
    },
};

/// Pages between the two threads.
const IN_FLIGHT: usize = 4;
/// Orders that wait for the thread.
const ORDERS: usize = 8;
/// Pages copied in a step while streams wait for it.
const A_FEW: usize = 8;
/// Fewer pages than this are computed as quickly as read.
const WORTH_READING: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Warm {
    disk: Option<Disk>,
    loading: Option<Loading>,
    saving: Option<Saving>,
    loaded: u64,
}

/// The engine's side of the thread.
#[derive(Debug)]
struct Disk {
    /// `None` once the engine stops.
    orders: Option<SyncSender<Order>>,
    index: Arc<Mutex<Index>>,
    stored: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    least_pages: usize,
    page_bytes: usize,
}

#[derive(Debug)]
enum Order {
    /// Send the pages of the longest prefix of these tokens, from this one on.
    Load {
        tokens: Vec<u32>,
        first: usize,
        pages: SyncSender<Vec<u8>>,
    },
    /// Write a file of these tokens; it is given up if fewer pages come.
    Save {
        tokens: Vec<u32>,
        pages: Receiver<Vec<u8>>,
    },
    /// This file's prefix was wanted, and was in memory.
    Touch(PathBuf),
}

#[derive(Debug)]
struct Loading {
    /// The sequence that waits for it.
    id: u64,
    tokens: Vec<u32>,
    /// What is there so far.
    pages: PageList,
    first: usize,
    incoming: Receiver<Vec<u8>>,
}

#[derive(Debug)]
struct Saving {
    pages: PageList,
    next: usize,
    /// Read from the device and not yet taken by the thread.
    ready: Option<Vec<u8>>,
    outgoing: SyncSender<Vec<u8>>,
}

impl Warm {
    /// Opens the store. Where that fails the engine goes without, and the log says why.
    pub(super) fn start(options: &WarmStart, caps: &Caps, shared: &Arc<Shared>) -> Warm {
        let key = Key::new(&options.model, &caps.page_layout, caps.page_bytes);
        let disk = Store::open(&options.dir, options.max_bytes, key).and_then(|store| {
            let index = Arc::new(Mutex::new(store.index().clone()));
            let stored = Arc::<AtomicU64>::default();
            let (orders, inbox) = sync_channel(ORDERS);
            let clerk = Clerk {
                store,
                index: index.clone(),
                stored: stored.clone(),
                shared: shared.clone(),
            };
            let thread = std::thread::Builder::new().name("warm-start".to_owned());
            Ok(Disk {
                thread: Some(thread.spawn(move || clerk.work(&inbox))?),
                orders: Some(orders),
                index,
                stored,
                least_pages: options.min_tokens.div_ceil(PAGE_TOKENS).max(1),
                page_bytes: caps.page_bytes,
            })
        });
        let dir = options.dir.display();
        let mut warm = Warm::default();
        warm.disk = disk
            .inspect_err(|error| tracing::warn!(%dir, %error, "no warm start"))
            .ok();
        warm
    }

    /// Prefixes read and written so far.
    pub(super) fn counts(&self) -> (u64, u64) {
        let disk = self.disk.as_ref();
        let stored = disk.map_or(0, |disk| disk.stored.load(Ordering::Relaxed));
        (self.loaded, stored)
    }

    /// Must the sequence wait for pages from the disk? Starts reading them if more of its prefix is there than in memory.
    pub(super) fn is_awaited(&mut self, sequence: &mut Sequence, cache: &mut Cache) -> bool {
        let Some(disk) = &self.disk else {
            return false;
        };
        if let Some(loading) = &self.loading
            && loading.id == sequence.id
        {
            return true;
        }
        if sequence.asked_disk {
            return false;
        }
        let wanted = &sequence.tokens[..sequence.tokens.len() - 1];
        let index = lock(&disk.index);
        let Some((path, on_disk)) = index.longest(wanted) else {
            sequence.asked_disk = true;
            return false;
        };
        if on_disk < cache.known(wanted).0 + WORTH_READING {
            sequence.asked_disk = true;
            disk.order(Order::Touch(path.to_path_buf()));
            return false;
        }
        drop(index);
        if self.loading.is_some() {
            // One after the other; the other may bring what this one wants.
            return true;
        }
        sequence.asked_disk = true;
        let pages = cache.whole(wanted);
        let tokens = wanted[..on_disk * PAGE_TOKENS].to_vec();
        let (send, incoming) = sync_channel(IN_FLIGHT);
        let is_ordered = disk.order(Order::Load {
            tokens: tokens.clone(),
            first: pages.len(),
            pages: send,
        });
        if is_ordered {
            self.loading = Some(Loading {
                id: sequence.id,
                tokens,
                first: pages.len(),
                pages,
                incoming,
            });
        }
        is_ordered
    }

    /// Starts writing the stable prefix of a sequence, once it is computed, unless it is on disk already.
    pub(super) fn offer(&mut self, sequence: &mut Sequence) {
        let Some(disk) = &self.disk else {
            return;
        };
        let pages = sequence.stable_prefix / PAGE_TOKENS;
        if sequence.offered_disk || sequence.done < pages * PAGE_TOKENS || self.saving.is_some() {
            return;
        }
        sequence.offered_disk = true;
        let tokens = &sequence.tokens[..pages * PAGE_TOKENS];
        let is_there = || {
            let index = lock(&disk.index);
            index
                .longest(tokens)
                .is_some_and(|(_, there)| there == pages)
        };
        if pages < disk.least_pages || is_there() {
            return;
        }
        let (outgoing, incoming) = sync_channel(IN_FLIGHT);
        let is_ordered = disk.order(Order::Save {
            tokens: tokens.to_vec(),
            pages: incoming,
        });
        if is_ordered {
            self.saving = Some(Saving {
                pages: sequence.pages.first(pages),
                next: 0,
                ready: None,
                outgoing,
            });
        }
    }

    /// Moves pages, a few if streams wait. True if there was anything to do.
    pub(super) fn pump(
        &mut self,
        device: &mut dyn Device,
        cache: &mut Cache,
        streams: bool,
    ) -> Result<bool, DeviceError> {
        let most = if streams { A_FEW } else { usize::MAX };
        let loaded = self.pump_loading(device, cache, most)?;
        let saved = self.pump_saving(device, most)?;
        Ok(loaded || saved)
    }

    fn pump_loading(
        &mut self,
        device: &mut dyn Device,
        cache: &mut Cache,
        most: usize,
    ) -> Result<bool, DeviceError> {
        let Some(loading) = &mut self.loading else {
            return Ok(false);
        };
        for moved in 0..most {
            match loading.incoming.try_recv() {
                Ok(bytes) => {
                    let Some(page) = cache.take() else {
                        self.end_loading(cache);
                        return Ok(true);
                    };
                    device.write_page(page.id(), &bytes)?;
                    loading.pages.push(page);
                }
                Err(TryRecvError::Empty) => return Ok(moved > 0),
                Err(TryRecvError::Disconnected) => {
                    self.end_loading(cache);
                    return Ok(true);
                }
            }
        }
        Ok(true)
    }

    /// Keeps what has come; the sequence goes on from there.
    fn end_loading(&mut self, cache: &mut Cache) {
        if let Some(mut loading) = self.loading.take()
            && loading.pages.len() > loading.first
        {
            self.loaded += 1;
            let tokens = &loading.tokens[..loading.pages.len() * PAGE_TOKENS];
            cache.keep(tokens, &mut loading.pages);
        }
    }

    fn pump_saving(&mut self, device: &mut dyn Device, most: usize) -> Result<bool, DeviceError> {
        let (Some(saving), Some(disk)) = (&mut self.saving, &self.disk) else {
            return Ok(false);
        };
        for moved in 0..most {
            let Some(bytes) = saving.next_bytes(device, disk.page_bytes)? else {
                self.saving = None;
                return Ok(true);
            };
            match saving.outgoing.try_send(bytes) {
                Ok(()) => {}
                Err(TrySendError::Full(bytes)) => {
                    saving.ready = Some(bytes);
                    return Ok(moved > 0);
                }
                // The disk is full, or the file would be too large; the thread has said so.
                Err(TrySendError::Disconnected(_)) => {
                    self.saving = None;
                    return Ok(true);
                }
            }
        }
        Ok(true)
    }

    /// Writes what is begun to its end: an orderly stop right after an answer keeps the prefix. Waits for the disk only; what is being read is given up.
    pub(super) fn finish_saving(&mut self, device: &mut dyn Device) -> Result<(), DeviceError> {
        // The thread would wait for somebody to take those pages, and never come to the file.
        self.loading = None;
        let (Some(mut saving), Some(disk)) = (self.saving.take(), &self.disk) else {
            return Ok(());
        };
        while let Some(bytes) = saving.next_bytes(device, disk.page_bytes)? {
            if saving.outgoing.send(bytes).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Is a file being written?
    pub(super) fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// Gives lent pages back to those who compute; false if none were lent.
    pub(super) fn take_back(&mut self) -> bool {
        // Dropping its end of the channel tells the thread.
        self.saving.take().is_some() || self.loading.take().is_some()
    }
}

impl Saving {
    /// The page that goes to the thread next, `[page_bytes]`; `None` after the last.
    fn next_bytes(
        &mut self,
        device: &mut dyn Device,
        page_bytes: usize,
    ) -> Result<Option<Vec<u8>>, DeviceError> {
        if let Some(bytes) = self.ready.take() {
            return Ok(Some(bytes));
        }
        let Some(page) = self.pages.get(self.next) else {
            return Ok(None);
        };
        let mut bytes = vec![0; page_bytes];
        device.read_page(page.id(), &mut bytes)?;
        self.next += 1;
        Ok(Some(bytes))
    }
}

impl Disk {
    /// False if the thread has too much to do, or is gone.
    fn order(&self, order: Order) -> bool {
        let orders = self.orders.as_ref();
        orders.is_some_and(|orders| orders.try_send(order).is_ok())
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        // Without these the thread has nothing to wait for.
        self.loading = None;
        self.saving = None;
        if let Some(disk) = &mut self.disk {
            disk.orders = None;
            if let Some(thread) = disk.thread.take()
                && thread.join().is_err()
            {
                tracing::error!("the warm start's thread panicked");
            }
        }
    }
}

/// The thread's side.
#[derive(Debug)]
struct Clerk {
    store: Store,
    index: Arc<Mutex<Index>>,
    stored: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

impl Clerk {
    fn work(mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Touch(path) => self.store.touch(&path),
                Order::Load {
                    tokens,
                    first,
                    pages,
                } => {
                    self.load(&tokens, first, &pages);
                    // The end of the channel is the end of the prefix.
                    drop(pages);
                    self.publish_index();
                    self.shared.wake();
                }
                Order::Save { tokens, pages } => match self.save(&tokens, &pages) {
                    Ok(true) => {
                        self.stored.fetch_add(1, Ordering::Relaxed);
                        self.publish_index();
                        self.shared.wake();
                    }
                    Ok(false) => {}
                    Err(error) => tracing::warn!(%error, "a prefix could not be stored"),
                },
            }
        }
    }

    fn load(&mut self, tokens: &[u32], first: usize, pages: &SyncSender<Vec<u8>>) {
        let Some(mut reader) = self.store.reader(tokens, first) else {
            return;
        };
        loop {
            match reader.page() {
                Ok(Some(bytes)) => {
                    if pages.send(bytes).is_err() {
                        return;
                    }
                    self.shared.wake();
                }
                Ok(None) => return,
                Err(error) => return self.store.discard(reader.path(), &error),
            }
        }
    }

    /// False if it was given up.
    fn save(&mut self, tokens: &[u32], pages: &Receiver<Vec<u8>>) -> io::Result<bool> {
        let Some(mut writer) = self.store.writer(tokens)? else {
            let tokens = tokens.len();
            tracing::info!(tokens, "a prefix is larger than all that may be stored");
            return Ok(false);
        };
        self.publish_index();
        while writer.missing() > 0 {
            let Ok(bytes) = pages.recv() else {
                return Ok(false);
            };
            self.shared.wake();
            Writer::page(&mut writer, &bytes)?;
        }
        self.store.finish(writer)?;
        Ok(true)
    }

    fn publish_index(&self) {
        *lock(&self.index) = self.store.index().clone();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
