//! The sources, and which kernel lies in which.

use crate::pack::{Encoding, Format};

/// A file of kernels.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Source {
    /// `matvec`
    pub name: &'static str,
    pub text: &'static str,
}

/// Files that kernels include, by name.
pub const HEADERS: [Source; 11] = [
    Source {
        name: "device.cuh",
        text: include_str!("../cuda/device.cuh"),
    },
    Source {
        name: "formats.cuh",
        text: include_str!("../cuda/formats.cuh"),
    },
    Source {
        name: "encode.cuh",
        text: include_str!("../cuda/encode.cuh"),
    },
    Source {
        name: "product.cuh",
        text: include_str!("../cuda/product.cuh"),
    },
    Source {
        name: "cache.cuh",
        text: include_str!("../cuda/cache.cuh"),
    },
    Source {
        name: "matvec.cuh",
        text: include_str!("../cuda/matvec.cuh"),
    },
    Source {
        name: "norm_gate_up.cuh",
        text: include_str!("../cuda/norm_gate_up.cuh"),
    },
    Source {
        name: "norm_qkv_rope.cuh",
        text: include_str!("../cuda/norm_qkv_rope.cuh"),
    },
    Source {
        name: "attention.cuh",
        text: include_str!("../cuda/attention.cuh"),
    },
    Source {
        name: "device_sm90.cuh",
        text: include_str!("../cuda/device_sm90.cuh"),
    },
    Source {
        name: "product_sm90.cuh",
        text: include_str!("../cuda/product_sm90.cuh"),
    },
];

/// All files of kernels that every target has.
pub const SOURCES: [Source; 9] = [
    Source {
        name: "embed",
        text: include_str!("../cuda/embed.cu"),
    },
    Source {
        name: "encode",
        text: include_str!("../cuda/encode.cu"),
    },
    Source {
        name: "norm_qkv_rope",
        text: include_str!("../cuda/norm_qkv_rope.cu"),
    },
    Source {
        name: "attention",
        text: include_str!("../cuda/attention.cu"),
    },
    Source {
        name: "matvec",
        text: include_str!("../cuda/matvec.cu"),
    },
    Source {
        name: "norm_gate_up",
        text: include_str!("../cuda/norm_gate_up.cu"),
    },
    Source {
        name: "sample",
        text: include_str!("../cuda/sample.cu"),
    },
    Source {
        name: "cache_copy",
        text: include_str!("../cuda/cache_copy.cu"),
    },
    Source {
        name: "primitives",
        text: include_str!("../cuda/primitives.cu"),
    },
];

/// Files of kernels that only Hopper has: they compile for sm_90a and nothing else.
pub const SOURCES_SM90: [Source; 6] = [
    Source {
        name: "encode_sm90",
        text: include_str!("../cuda/encode_sm90.cu"),
    },
    Source {
        name: "norm_qkv_rope_sm90",
        text: include_str!("../cuda/norm_qkv_rope_sm90.cu"),
    },
    Source {
        name: "matvec_sm90",
        text: include_str!("../cuda/matvec_sm90.cu"),
    },
    Source {
        name: "norm_gate_up_sm90",
        text: include_str!("../cuda/norm_gate_up_sm90.cu"),
    },
    Source {
        name: "attention_sm90",
        text: include_str!("../cuda/attention_sm90.cu"),
    },
    Source {
        name: "primitives_sm90",
        text: include_str!("../cuda/primitives_sm90.cu"),
    },
];

/// All files that a target has: those of [`SOURCES_SM90`] come last, for `sm_90a` only.
pub fn sources(arch: &str) -> Vec<Source> {
    let hopper: &[Source] = if arch == "sm_90a" { &SOURCES_SM90 } else { &[] };
    SOURCES.iter().chain(hopper).copied().collect()
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CacheFormat {
    Bf16,
    /// e4m3 with a scale for each token and head.
    Fp8,
}

/// Tokens of a block of a product, or queries of a block of attention.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Width {
    W8,
    W32,
    /// Attention only.
    W64,
    /// Products only.
    W128,
    /// By the warp groups of Hopper: 128 tokens, or 128 queries of whole pieces.
    Sm90,
}

impl Width {
    pub fn get(self) -> usize {
        match self {
            Width::W8 => 8,
            Width::W32 => 32,
            Width::W64 => 64,
            Width::W128 | Width::Sm90 => 128,
        }
    }

    /// As in the names of kernels.
    fn name(self) -> String {
        match self {
            Width::Sm90 => "sm90".to_owned(),
            width => width.get().to_string(),
        }
    }
}

/// A piece of `device.cuh` with a kernel of its own, so that a GPU can be compared with the simulator and both with the definition.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Primitive {
    Shuffles,
    Barrier,
    Copy,
    Matrices,
    MmaBf16,
    MmaInt8,
    MmaHalf,
    Conversions,
    Functions,
    Atomics,
    /// Only on Hopper.
    Group,
}

impl Primitive {
    /// Those of every target.
    pub const ALL: [Primitive; 10] = [
        Primitive::Shuffles,
        Primitive::Barrier,
        Primitive::Copy,
        Primitive::Matrices,
        Primitive::MmaBf16,
        Primitive::MmaInt8,
        Primitive::MmaHalf,
        Primitive::Conversions,
        Primitive::Functions,
        Primitive::Atomics,
    ];

    fn name(self) -> &'static str {
        match self {
            Primitive::Shuffles => "shuffles",
            Primitive::Barrier => "barrier",
            Primitive::Copy => "copy",
            Primitive::Matrices => "matrices",
            Primitive::MmaBf16 => "mma_bf16",
            Primitive::MmaInt8 => "mma_int8",
            Primitive::MmaHalf => "mma_half",
            Primitive::Conversions => "conversions",
            Primitive::Functions => "functions",
            Primitive::Atomics => "atomics",
            Primitive::Group => "group",
        }
    }

    /// Of a block: one warp for what a warp does, four for what a group of them does, two for the rest.
    fn threads(self) -> u32 {
        match self {
            Primitive::Matrices | Primitive::MmaBf16 | Primitive::MmaInt8 | Primitive::MmaHalf => {
                32
            }
            Primitive::Group => 128,
            _ => 64,
        }
    }
}

/// A kernel that can be launched.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kernel {
    Embed(Format),
    Encode(Encoding),
    /// For products of [`Width::Sm90`]; not int8.
    EncodeSm90(Encoding),
    NormQkvRope(Format, Width),
    AppendFp8,
    Attention(CacheFormat, Width),
    Matvec(Format, Width),
    NormGateUp(Format, Width),
    Sample,
    CacheCopy,
    Primitive(Primitive),
}

impl Kernel {
    /// The entry point: `matvec_q4_0_8`.
    pub fn name(self) -> String {
        let wide = |name: &str, format: Format, width: Width| {
            format!("{name}_{}_{}", format.name(), width.name())
        };
        match self {
            Kernel::Embed(format) => format!("embed_{}", format.name()),
            Kernel::Encode(encoding) => format!("encode_{}", encoding.name()),
            Kernel::EncodeSm90(encoding) => format!("encode_{}_sm90", encoding.name()),
            Kernel::NormQkvRope(format, width) => wide("norm_qkv_rope", format, width),
            Kernel::AppendFp8 => "append_fp8".to_owned(),
            Kernel::Attention(CacheFormat::Bf16, width) => {
                format!("attention_bf16_{}", width.name())
            }
            Kernel::Attention(CacheFormat::Fp8, width) => format!("attention_fp8_{}", width.name()),
            Kernel::Matvec(format, width) => wide("matvec", format, width),
            Kernel::NormGateUp(format, width) => wide("norm_gate_up", format, width),
            Kernel::Sample => "sample".to_owned(),
            Kernel::CacheCopy => "cache_copy".to_owned(),
            Kernel::Primitive(primitive) => format!("primitive_{}", primitive.name()),
        }
    }

    /// The file it lies in, one of [`SOURCES`] or [`SOURCES_SM90`].
    pub fn source(self) -> &'static str {
        match self {
            Kernel::EncodeSm90(_) => "encode_sm90",
            Kernel::NormQkvRope(_, Width::Sm90) => "norm_qkv_rope_sm90",
            Kernel::Matvec(_, Width::Sm90) => "matvec_sm90",
            Kernel::NormGateUp(_, Width::Sm90) => "norm_gate_up_sm90",
            Kernel::Attention(_, Width::Sm90) => "attention_sm90",
            Kernel::Primitive(Primitive::Group) => "primitives_sm90",
            Kernel::Embed(_) => "embed",
            Kernel::Encode(_) => "encode",
            Kernel::NormQkvRope(..) | Kernel::AppendFp8 => "norm_qkv_rope",
            Kernel::Attention(..) => "attention",
            Kernel::Matvec(..) => "matvec",
            Kernel::NormGateUp(..) => "norm_gate_up",
            Kernel::Sample => "sample",
            Kernel::CacheCopy => "cache_copy",
            Kernel::Primitive(_) => "primitives",
        }
    }

    /// Threads of its blocks.
    pub fn threads(self) -> u32 {
        match self {
            Kernel::Sample => 1024,
            Kernel::Primitive(primitive) => primitive.threads(),
            Kernel::NormQkvRope(_, Width::Sm90)
            | Kernel::Matvec(_, Width::Sm90)
            | Kernel::NormGateUp(_, Width::Sm90) => 288,
            _ => 256,
        }
    }

    /// Every kernel that only Hopper has, in [`SOURCES_SM90`].
    pub fn all_sm90() -> Vec<Kernel> {
        let mut all = vec![Kernel::Primitive(Primitive::Group)];
        all.extend([Encoding::Bf16, Encoding::F16].map(Kernel::EncodeSm90));
        all.extend(
            [CacheFormat::Bf16, CacheFormat::Fp8].map(|f| Kernel::Attention(f, Width::Sm90)),
        );
        for format in [Format::Bf16, Format::F16, Format::Fp8] {
            all.push(Kernel::NormQkvRope(format, Width::Sm90));
            all.push(Kernel::Matvec(format, Width::Sm90));
            all.push(Kernel::NormGateUp(format, Width::Sm90));
        }
        all
    }

    /// Every kernel that all targets have, in [`SOURCES`].
    pub fn all() -> Vec<Kernel> {
        let mut all = vec![Kernel::AppendFp8, Kernel::CacheCopy, Kernel::Sample];
        all.extend(Encoding::ALL.map(Kernel::Encode));
        all.extend(Primitive::ALL.map(Kernel::Primitive));
        for format in Format::ALL {
            all.push(Kernel::Embed(format));
            for width in [Width::W8, Width::W32, Width::W128] {
                all.push(Kernel::NormQkvRope(format, width));
                all.push(Kernel::Matvec(format, width));
                all.push(Kernel::NormGateUp(format, width));
            }
        }
        for width in [Width::W8, Width::W32, Width::W64] {
            all.push(Kernel::Attention(CacheFormat::Bf16, width));
            all.push(Kernel::Attention(CacheFormat::Fp8, width));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_its_kernels_and_nothing_includes_an_unknown_header() {
        for (sources, kernels) in [
            (&SOURCES[..], Kernel::all()),
            (&SOURCES_SM90, Kernel::all_sm90()),
        ] {
            for kernel in &kernels {
                let source = sources.iter().find(|s| s.name == kernel.source());
                assert!(source.is_some(), "{}", kernel.name());
            }
            for source in sources {
                assert!(kernels.iter().any(|k| k.source() == source.name));
            }
        }
        let all = HEADERS.iter().chain(&SOURCES).chain(&SOURCES_SM90);
        for source in all {
            for line in source
                .text
                .lines()
                .filter_map(|l| l.strip_prefix("#include \""))
            {
                let name = line.trim_end_matches('"');
                assert!(
                    ["runtime.h", "runtime_sm90.h"].contains(&name)
                        || HEADERS.iter().any(|h| h.name == name),
                    "{}: {name}",
                    source.name
                );
            }
        }
    }
}
