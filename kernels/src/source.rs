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
pub const HEADERS: [Source; 5] = [
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
];

/// All files of kernels.
pub const SOURCES: [Source; 8] = [
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
];

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
}

impl Width {
    pub fn get(self) -> usize {
        match self {
            Width::W8 => 8,
            Width::W32 => 32,
            Width::W64 => 64,
            Width::W128 => 128,
        }
    }
}

/// A kernel that can be launched.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kernel {
    Embed(Format),
    Encode(Encoding),
    NormQkvRope(Format, Width),
    AppendFp8,
    Attention(CacheFormat, Width),
    Matvec(Format, Width),
    NormGateUp(Format, Width),
    Sample,
    CacheCopy,
}

impl Kernel {
    /// The entry point: `matvec_q4_0_8`.
    pub fn name(self) -> String {
        let wide = |name: &str, format: Format, width: Width| {
            format!("{name}_{}_{}", format.name(), width.get())
        };
        match self {
            Kernel::Embed(format) => format!("embed_{}", format.name()),
            Kernel::Encode(encoding) => format!("encode_{}", encoding.name()),
            Kernel::NormQkvRope(format, width) => wide("norm_qkv_rope", format, width),
            Kernel::AppendFp8 => "append_fp8".to_owned(),
            Kernel::Attention(CacheFormat::Bf16, width) => {
                format!("attention_bf16_{}", width.get())
            }
            Kernel::Attention(CacheFormat::Fp8, width) => format!("attention_fp8_{}", width.get()),
            Kernel::Matvec(format, width) => wide("matvec", format, width),
            Kernel::NormGateUp(format, width) => wide("norm_gate_up", format, width),
            Kernel::Sample => "sample".to_owned(),
            Kernel::CacheCopy => "cache_copy".to_owned(),
        }
    }

    /// The file it lies in, one of [`SOURCES`].
    pub fn source(self) -> &'static str {
        match self {
            Kernel::Embed(_) => "embed",
            Kernel::Encode(_) => "encode",
            Kernel::NormQkvRope(..) | Kernel::AppendFp8 => "norm_qkv_rope",
            Kernel::Attention(..) => "attention",
            Kernel::Matvec(..) => "matvec",
            Kernel::NormGateUp(..) => "norm_gate_up",
            Kernel::Sample => "sample",
            Kernel::CacheCopy => "cache_copy",
        }
    }

    /// Threads of its blocks.
    pub fn threads(self) -> u32 {
        if self == Kernel::Sample { 1024 } else { 256 }
    }

    /// Every kernel there is.
    pub fn all() -> Vec<Kernel> {
        let mut all = vec![Kernel::AppendFp8, Kernel::CacheCopy, Kernel::Sample];
        all.extend(Encoding::ALL.map(Kernel::Encode));
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
        for source in SOURCES {
            assert!(Kernel::all().iter().any(|k| k.source() == source.name));
        }
        for source in HEADERS.iter().chain(&SOURCES) {
            for line in source
                .text
                .lines()
                .filter_map(|l| l.strip_prefix("#include \""))
            {
                let name = line.trim_end_matches('"');
                assert!(
                    name == "runtime.h" || HEADERS.iter().any(|h| h.name == name),
                    "{}: {name}",
                    source.name
                );
            }
        }
    }
}
