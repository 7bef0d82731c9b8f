//! The calling convention: what a launch is, and what somebody who launches can do.

use std::fmt::Debug;

use bytemuck::Pod;

use crate::source::Kernel;

/// Memory of a device, or a part of some. Says how long it is, so that a launch can be checked before it runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Memory {
    address: u64,
    bytes: usize,
}

impl Memory {
    /// For launchers. `address` is a multiple of 16.
    pub fn new(address: u64, bytes: usize) -> Memory {
        Memory { address, bytes }
    }

    pub fn address(self) -> u64 {
        self.address
    }

    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// `bytes` bytes from `start` on.
    pub fn part(self, start: usize, bytes: usize) -> Result<Memory, ShapeError> {
        if start > self.bytes || bytes > self.bytes - start || !start.is_multiple_of(16) {
            return Err(ShapeError(format!(
                "{bytes} bytes from byte {start} of {}; parts start at a multiple of 16",
                self.bytes
            )));
        }
        Ok(Memory {
            address: self.address + start as u64,
            bytes,
        })
    }

    /// The address, if there are at least `bytes` bytes.
    pub(crate) fn hold(self, what: &str, bytes: usize) -> Result<u64, ShapeError> {
        if self.bytes < bytes {
            return Err(ShapeError(format!(
                "{what} has {} bytes; {bytes} are needed",
                self.bytes
            )));
        }
        Ok(self.address)
    }
}

/// A launch that does not fit its buffers or that no kernel can do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ShapeError(pub String);

impl ShapeError {
    pub(crate) fn unless(ok: bool, message: impl FnOnce() -> String) -> Result<(), ShapeError> {
        if ok {
            Ok(())
        } else {
            Err(ShapeError(message()))
        }
    }
}

/// Most bytes of shared memory a block may have on every target (sm_86, sm_89 and sm_120 have the least).
pub const MOST_SHARED_BYTES: usize = 99 << 10;

/// The same on Hopper, for the kernels that only it has.
pub const MOST_SHARED_BYTES_SM90: usize = 227 << 10;

/// One launch of a kernel: everything but where it runs.
#[derive(Clone, Debug)]
pub struct Launch {
    pub kernel: Kernel,
    pub grid: [u32; 3],
    /// Of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: usize,
    params: Vec<u8>,
}

impl Launch {
    pub fn new(kernel: Kernel, grid: [u32; 3], shared_bytes: usize, params: impl Pod) -> Launch {
        Launch {
            kernel,
            grid,
            threads: kernel.threads(),
            shared_bytes,
            params: bytemuck::bytes_of(&params).to_vec(),
        }
    }

    /// The kernel's one parameter, a struct by value.
    pub fn params(&self) -> &[u8] {
        &self.params
    }
}

/// The device, or what simulates it, failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct LaunchError(pub String);

/// Somebody who owns memory and runs kernels. Everything happens in the order in which it was asked for, as on one stream; only `download` waits.
pub trait Launcher: Debug {
    /// Memory of at least `bytes` bytes (16 when it is 0). Its contents are anything.
    fn alloc(&mut self, bytes: usize) -> Result<Memory, LaunchError>;

    /// Gives back what [`Launcher::alloc`] gave. Launches that use it have run by then.
    fn free(&mut self, memory: Memory) -> Result<(), LaunchError>;

    /// Sets the first `bytes.len()` bytes.
    fn upload(&mut self, to: Memory, bytes: &[u8]) -> Result<(), LaunchError>;

    /// Waits for all that was asked for and reads the first `bytes.len()` bytes.
    fn download(&mut self, from: Memory, bytes: &mut [u8]) -> Result<(), LaunchError>;

    /// Zeros all of it.
    fn clear(&mut self, memory: Memory) -> Result<(), LaunchError>;

    fn launch(&mut self, launch: &Launch) -> Result<(), LaunchError>;
}
