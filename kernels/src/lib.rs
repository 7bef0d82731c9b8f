//! CUDA kernels of the bundled engine. Empty until the engine lands; see README, section "Status".
