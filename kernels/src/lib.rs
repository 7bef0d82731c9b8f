//! The CUDA kernels of the bundled engine and their calling convention.
//!
//! ```text
//! cuda/     the sources: one operation a file, all PTX in device.cuh and device_sm90.cuh
//! source    the sources as text, and which kernel lies in which
//! launch    memory of a device, one launch, and the trait that two launchers implement: the driver's, and the simulator of kernels/sim
//! pack      weights in the order in which tensor cores read them
//! ops       one typed description an operation: it checks shapes and the sizes of all buffers and gives a launch
//! staging   what a step needs from the host, in one copy
//! nvrtc     compiles a source for an architecture, where the library is found
//! ```
//!
//! Nothing here needs CUDA to be built. Invariant: the bits of a token's results depend neither on the other tokens of a launch nor on how a context or a
//! prompt was cut into launches (see `cuda/product.cuh` and `cuda/attention.cu` for the order of sums that guarantees it).

pub mod launch;
pub mod nvrtc;
pub mod ops;
pub mod pack;
pub mod source;
pub mod staging;
