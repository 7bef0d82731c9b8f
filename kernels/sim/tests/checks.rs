//! Every check of the kernels on the simulator, in forward, reverse and random order of threads and blocks, with equal bits.

use kernels_sim::check;

macro_rules! tests {
    ($($module:ident::$check:ident)*) => {
        $(
            #[test]
            fn $check() {
                check::$module::$check(&mut check::On::Simulator);
            }
        )*
    };
}
kernels_sim::for_each_check!(tests);
