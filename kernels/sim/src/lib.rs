//! A launcher that runs the CUDA kernels on the CPU, from the same sources: compiled as C++, each thread of a block a fiber. For tests only.
//!
//! What it makes visible is listed in `cpp/runtime.h`; [`check`] holds the checks of all kernels, for this and any other launcher. Invariant: a launch gives the same bits in every [`Order`], or the kernel has a race.

pub mod check;

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use kernels::launch::{Launch, LaunchError, Launcher, Memory};

unsafe extern "C" {
    fn sim_alloc(bytes: usize) -> *mut c_void;
    fn sim_free(start: *mut c_void) -> bool;
    fn sim_launch(
        name: *const c_char,
        grid: *const u32,
        threads: u32,
        shared_bytes: usize,
        params: *const c_void,
        params_bytes: usize,
        order: c_int,
        seed: u64,
    ) -> *const c_char;
}

/// In which order blocks, and the threads of a block, take their turns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    Forward,
    Reverse,
    /// Another one with every seed.
    Random(u64),
}

impl Order {
    /// One of each kind.
    pub const EACH: [Order; 3] = [Order::Forward, Order::Reverse, Order::Random(1)];
}

/// The simulator. Memory is filled with NaN until it is written, and ends at a page that nobody may touch.
#[derive(Debug)]
pub struct SimLauncher {
    pub order: Order,
    memory: Vec<Memory>,
}

impl SimLauncher {
    pub fn new(order: Order) -> SimLauncher {
        SimLauncher {
            order,
            memory: Vec::new(),
        }
    }

    /// Launches any kernel by name, for the tests' own.
    pub fn run(
        &mut self,
        name: &str,
        grid: [u32; 3],
        threads: u32,
        shared_bytes: usize,
        params: &[u8],
    ) -> Result<(), LaunchError> {
        let name = CString::new(name).map_err(|_| LaunchError("a zero in a name".to_owned()))?;
        let (order, seed) = match self.order {
            Order::Forward => (0, 0),
            Order::Reverse => (1, 0),
            Order::Random(seed) => (2, seed),
        };
        // Parameters hold addresses: they are read as words.
        let mut words = vec![0u64; params.len().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(params.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        // SAFETY: the name ends with a zero, the grid has three numbers, and the simulator refuses parameters of another length than the kernel's. Kernels
        // touch only what their parameters point to; a touch outside of this launcher's memory is caught and reported.
        let message = unsafe {
            sim_launch(
                name.as_ptr(),
                grid.as_ptr(),
                threads,
                shared_bytes,
                words.as_ptr().cast(),
                params.len(),
                order,
                seed,
            )
        };
        if message.is_null() {
            return Ok(());
        }
        // SAFETY: not null, ends with a zero, and stays until the next launch of this thread.
        let message = unsafe { CStr::from_ptr(message) };
        Err(LaunchError(message.to_string_lossy().into_owned()))
    }

    /// Fails unless `memory` is a part of what this launcher gave out.
    fn own(&self, memory: Memory, bytes: usize) -> Result<*mut u8, LaunchError> {
        let end = memory.address() + bytes as u64;
        let own = self
            .memory
            .iter()
            .any(|m| memory.address() >= m.address() && end <= m.address() + m.bytes() as u64);
        if own && bytes <= memory.bytes() {
            Ok(memory.address() as *mut u8)
        } else {
            Err(LaunchError(format!("{bytes} bytes in {memory:?}")))
        }
    }
}

impl Launcher for SimLauncher {
    fn alloc(&mut self, bytes: usize) -> Result<Memory, LaunchError> {
        let bytes = if bytes == 0 { 16 } else { bytes };
        // SAFETY: any size may be asked for.
        let start = unsafe { sim_alloc(bytes) };
        if start.is_null() {
            return Err(LaunchError(format!("no memory for {bytes} bytes")));
        }
        let memory = Memory::new(start as u64, bytes);
        self.memory.push(memory);
        Ok(memory)
    }

    fn free(&mut self, memory: Memory) -> Result<(), LaunchError> {
        let index = self.memory.iter().position(|m| *m == memory);
        let index = index.ok_or_else(|| LaunchError(format!("{memory:?} is nobody's")))?;
        self.memory.swap_remove(index);
        // SAFETY: it came from sim_alloc and was just forgotten.
        unsafe { sim_free(memory.address() as *mut c_void) };
        Ok(())
    }

    fn upload(&mut self, to: Memory, bytes: &[u8]) -> Result<(), LaunchError> {
        let to = self.own(to, bytes.len())?;
        // SAFETY: `own` found the whole range in memory of this launcher, which nobody else writes meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    fn download(&mut self, from: Memory, bytes: &mut [u8]) -> Result<(), LaunchError> {
        let from = self.own(from, bytes.len())?;
        // SAFETY: as in upload; all bytes were set when the memory was made.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn clear(&mut self, memory: Memory) -> Result<(), LaunchError> {
        let to = self.own(memory, memory.bytes())?;
        // SAFETY: as in upload.
        unsafe { std::ptr::write_bytes(to, 0, memory.bytes()) };
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), LaunchError> {
        self.run(
            &launch.kernel.name(),
            launch.grid,
            launch.threads,
            launch.shared_bytes,
            launch.params(),
        )
    }
}

impl Drop for SimLauncher {
    fn drop(&mut self) {
        for memory in self.memory.drain(..) {
            // SAFETY: it came from sim_alloc and is forgotten here.
            unsafe { sim_free(memory.address() as *mut c_void) };
        }
    }
}
