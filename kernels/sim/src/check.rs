//! Checks of every kernel against f64 and of every primitive against its definition, written for any launcher: the tests run them [`On::Simulator`], a machine
//! with a GPU runs the same ones [`On::Device`].
//!
//! ```text
//! primitives   one kernel for each piece of PTX        encode, embed, products, qkv     the products of a layer
//! attention    over pages, cache_copy                  sample                           against a plain sampler that sorts
//! hopper       what only Hopper has
//! random, rows, matrix, cache                          what they share
//! ```
//!
//! A check panics with what it found.

#![allow(clippy::unwrap_used, reason = "a check that fails panics")]

pub mod attention;
mod cache;
pub mod cache_copy;
pub mod embed;
pub mod encode;
pub mod hopper;
mod matrix;
pub mod primitives;
pub mod products;
pub mod qkv;
mod random;
mod rows;
pub mod sample;

use std::{
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    time::Instant,
};

use bytemuck::{AnyBitPattern, NoUninit};
use kernels::launch::{Launch, LaunchError, Launcher, Memory};

use crate::{Order, SimLauncher};

/// Where a check runs.
#[derive(Debug)]
pub enum On<'a> {
    Simulator,
    Device(&'a mut dyn Launcher),
}

impl On<'_> {
    /// Runs `body` on the simulator in each order, or twice on a device, and gives its result, which must be the same bits every time.
    ///
    /// # Panics
    /// If it is not, or if the body does.
    pub fn run<T: NoUninit>(
        &mut self,
        mut body: impl FnMut(&mut dyn Launcher) -> Vec<T>,
    ) -> Vec<T> {
        let results = match self {
            // The sanitizers look at addresses, not at bits, and take their time.
            On::Simulator if cfg!(kernels_sanitized) => {
                vec![body(&mut SimLauncher::new(Order::Random(1)))]
            }
            On::Simulator => Order::EACH
                .map(|order| body(&mut SimLauncher::new(order)))
                .to_vec(),
            On::Device(device) => (0..2).map(|_| body(&mut Borrowed::new(*device))).collect(),
        };
        for other in &results[1..] {
            assert!(
                bytemuck::cast_slice::<T, u8>(other) == bytemuck::cast_slice::<T, u8>(&results[0]),
                "the bits depend on the order of threads"
            );
        }
        results.into_iter().next().unwrap_or_default()
    }

    pub fn simulated(&self) -> bool {
        matches!(self, On::Simulator)
    }

    /// Runs `body` once.
    pub fn once<T>(&mut self, body: impl FnOnce(&mut dyn Launcher) -> T) -> T {
        match self {
            On::Simulator => body(&mut SimLauncher::new(Order::Forward)),
            On::Device(device) => body(&mut Borrowed::new(*device)),
        }
    }
}

/// A device whose memory is given back when a check is through.
#[derive(Debug)]
struct Borrowed<'a> {
    device: &'a mut dyn Launcher,
    memory: Vec<Memory>,
}

impl<'a> Borrowed<'a> {
    fn new(device: &'a mut dyn Launcher) -> Borrowed<'a> {
        Borrowed {
            device,
            memory: Vec::new(),
        }
    }
}

impl Launcher for Borrowed<'_> {
    fn alloc(&mut self, bytes: usize) -> Result<Memory, LaunchError> {
        let memory = self.device.alloc(bytes)?;
        self.memory.push(memory);
        Ok(memory)
    }

    fn free(&mut self, memory: Memory) -> Result<(), LaunchError> {
        self.memory.retain(|m| *m != memory);
        self.device.free(memory)
    }

    fn upload(&mut self, to: Memory, bytes: &[u8]) -> Result<(), LaunchError> {
        self.device.upload(to, bytes)
    }

    fn download(&mut self, from: Memory, bytes: &mut [u8]) -> Result<(), LaunchError> {
        self.device.download(from, bytes)
    }

    fn clear(&mut self, memory: Memory) -> Result<(), LaunchError> {
        self.device.clear(memory)
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), LaunchError> {
        self.device.launch(launch)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        for memory in self.memory.drain(..) {
            // A device that has failed says so at the next call; there is nobody to tell here.
            let _ = self.device.free(memory);
        }
    }
}

/// Runs the checks whose name contains `part` and writes a line for each; gives how many failed. Those of Hopper only where `hopper` says so.
///
/// # Errors
/// Those of `out`.
pub fn report(on: &mut On<'_>, part: &str, hopper: bool, out: &mut dyn Write) -> io::Result<usize> {
    let mut failed = 0;
    let hook = panic::take_hook();
    // What a check panics with is in its line.
    panic::set_hook(Box::new(|_| ()));
    for (name, check) in CHECKS {
        if !name.contains(part) || !hopper && name.starts_with("hopper") {
            continue;
        }
        let start = Instant::now();
        let result = panic::catch_unwind(AssertUnwindSafe(|| check(on)));
        let seconds = start.elapsed().as_secs_f32();
        match result {
            Ok(()) => writeln!(out, "ok      {seconds:6.2} s  {name}")?,
            Err(panic) => {
                failed += 1;
                let message = panic.downcast_ref::<String>().map(String::as_str);
                let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
                let message = message.unwrap_or("no message");
                writeln!(out, "FAILED  {seconds:6.2} s  {name}\n        {message}")?;
            }
        }
    }
    panic::set_hook(hook);
    Ok(failed)
}

/// Memory that holds `values`.
pub fn put<T: NoUninit>(on: &mut dyn Launcher, values: &[T]) -> Memory {
    let memory = on.alloc(size_of_val(values)).unwrap();
    on.upload(memory, bytemuck::cast_slice(values)).unwrap();
    memory
}

/// The first `count` values of some memory.
pub fn get<T: AnyBitPattern + NoUninit>(
    on: &mut dyn Launcher,
    memory: Memory,
    count: usize,
) -> Vec<T> {
    let mut values = vec![T::zeroed(); count];
    on.download(memory, bytemuck::cast_slice_mut(&mut values))
        .unwrap();
    values
}

fn launch(on: &mut dyn Launcher, launch: &Launch) {
    on.launch(launch).unwrap();
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// ‖got − want‖ / ‖want‖; everything finite.
fn distance(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let (mut apart, mut size) = (0.0, 0.0);
    for (g, w) in got.iter().zip(want) {
        assert!(g.is_finite(), "{g} instead of {w}");
        apart += (f64::from(*g) - w).powi(2);
        size += w * w;
    }
    (apart / size).sqrt()
}

/// Calls a macro with the path of every check, so that lists of them cannot miss one.
#[macro_export]
macro_rules! for_each_check {
    ($macro:ident) => {
        $macro! {
            primitives::shuffles_sums_and_votes_of_two_warps
            primitives::barriers_and_shared_memory_turn_a_block_around
            primitives::copies_land_when_waited_for_and_are_zeros_where_there_is_nothing
            primitives::matrices_come_to_lanes_by_row_and_by_column
            primitives::tensor_cores_multiply_bf16_and_f16
            primitives::tensor_cores_multiply_int8
            primitives::conversions_round_like_their_definitions
            primitives::functions_are_exact_or_as_near_as_they_say
            primitives::bits_are_those_of_the_simulator
            primitives::atomics_give_every_ticket_once
            encode::rows_are_encoded_to_the_precision_of_their_kind
            embed::embeddings_are_the_numbers_of_the_file
            products::products_of_every_format_match_f64_in_every_order
            products::the_residual_is_added
            products::a_tokens_bits_do_not_depend_on_its_company
            products::rows_encoded_in_the_prologue_give_the_bits_of_rows_encoded_before
            products::gate_and_up_match_f64_in_every_order
            qkv::queries_keys_and_values_turn_and_go_to_their_pages
            attention::decode_of_ragged_batches_matches_f64_in_every_order
            attention::prompts_and_drafts_match_f64_and_their_bits_do_not_depend_on_how_they_were_cut
            attention::a_wrong_page_is_seen
            cache_copy::a_copied_page_has_the_first_tokens_and_zeros_behind
            sample::draws_of_every_kind_are_those_of_a_plain_sampler
            sample::draws_follow_the_weights
            sample::broken_rows_and_empty_masks_are_named
            hopper::four_warps_multiply_a_tile_that_the_memory_engine_brought
            hopper::products_of_tiles_are_those_of_rows
            hopper::gate_and_up_of_tiles_are_those_of_rows
            hopper::attention_of_prompts_is_that_of_every_target
            hopper::queries_keys_and_values_of_tiles_are_those_of_rows
        }
    };
}

macro_rules! list {
    ($($module:ident::$check:ident)*) => {
        /// Every check with its name.
        pub const CHECKS: &[(&str, fn(&mut On<'_>))] =
            &[$((concat!(stringify!($module), "::", stringify!($check)), $module::$check)),*];
    };
}
for_each_check!(list);
