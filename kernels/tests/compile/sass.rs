//! The machine code of kernels, by NVIDIA's disassembler: which of Hopper's instructions each has.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path, process::Command};

use crate::wheel;

pub(crate) const PACKAGE: &str = "nvidia-cuda-nvdisasm==13.5.37";
pub(crate) const PROGRAM: &str = "nvidia/cu13/bin/nvdisasm";

/// A line for each kernel: its name, products of warp groups (HGMMA), copies by the memory engine (UBLKCP).
pub(crate) fn instructions(disassembler: &Path, name: &str, image: &[u8]) -> String {
    let file = wheel::cache().join(format!("{name}.cubin"));
    fs::write(&file, image).unwrap();
    let output = Command::new(disassembler).arg(&file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::remove_file(&file).unwrap();
    let mut kernel = String::new();
    let mut found: BTreeMap<String, [u32; 2]> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((_, rest)) = line.split_once(".section\t.text.") {
            kernel = rest.split(',').next().unwrap_or_default().to_owned();
        }
        let counts = found.entry(kernel.clone()).or_default();
        counts[0] += u32::from(line.contains(" HGMMA."));
        counts[1] += u32::from(line.contains(" UBLKCP"));
    }
    let mut text = String::new();
    for (kernel, [products, copies]) in found.iter().filter(|(kernel, _)| !kernel.is_empty()) {
        let _ = writeln!(text, "{kernel} {products} {copies}");
    }
    text
}

/// A line of [`instructions`].
pub(crate) fn read(line: &str) -> Option<(String, [u32; 2])> {
    let mut words = line.split(' ');
    let kernel = words.next()?.to_owned();
    Some((
        kernel,
        [words.next()?.parse().ok()?, words.next()?.parse().ok()?],
    ))
}
