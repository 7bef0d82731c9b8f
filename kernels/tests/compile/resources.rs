//! Registers and shared memory of the kernels: what the assembler says, what `resources.json` says, and the table of both in the README.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs::{self, File},
    path::{Path, PathBuf},
};

use codex_bridge_kernels::source::{Kernel, Primitive, Width};

use crate::{TARGETS, wheel};

/// Registers and bytes of static shared memory.
pub(crate) type Resources = [u32; 2];

/// Of all kernels, by kernel and target.
pub(crate) type Table = BTreeMap<String, BTreeMap<String, Resources>>;

const BEGIN: &str = "<!-- from resources.json -->\n";
const END: &str = "<!-- end -->";

/// What a log of the assembler says of each kernel.
///
/// # Panics
/// On a spill, a stack, or code that waits for tensor cores where it should not.
pub(crate) fn read_log(log: &str, target: &str) -> BTreeMap<String, Resources> {
    assert!(
        !log.contains("wgmma.mma_async instructions are serialized"),
        "{target}: {log}"
    );
    let mut kernel = String::new();
    let mut found = BTreeMap::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("entry function '") {
            kernel = rest.split('\'').next().unwrap_or_default().to_owned();
        }
        if line.contains("bytes stack frame") {
            for word in [" bytes stack", " bytes spill stores", " bytes spill loads"] {
                assert_eq!(
                    number_before(line, word),
                    Some(0),
                    "{kernel} on {target}: {line}"
                );
            }
        }
        if let Some((_, rest)) = line.split_once("Used ") {
            let registers = number_before(rest, " registers");
            let registers = registers.unwrap_or_else(|| panic!("no registers in {line}"));
            let shared = number_before(rest, " bytes smem").unwrap_or(0);
            found.insert(kernel.clone(), [registers, shared]);
        }
    }
    found
}

/// The number that stands before a word.
fn number_before(line: &str, word: &str) -> Option<u32> {
    let (before, _) = line.split_once(word)?;
    before.split_whitespace().next_back()?.parse().ok()
}

/// Puts what was measured for a target into the file and the README.
pub(crate) fn update(target: &str, measured: &BTreeMap<String, Resources>) {
    // The targets are tested side by side.
    let lock = File::create(wheel::cache().join("resources.lock")).unwrap();
    lock.lock().unwrap();
    let mut table = read();
    for targets in table.values_mut() {
        targets.remove(target);
    }
    for (kernel, resources) in measured {
        let targets = table.entry(kernel.clone()).or_default();
        targets.insert(target.to_owned(), *resources);
    }
    table.retain(|_, targets| !targets.is_empty());
    fs::write(file(), written(&table)).unwrap();
    let text = fs::read_to_string(readme()).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    fs::write(
        readme(),
        format!("{before}{BEGIN}{}{END}{after}", markdown(&table)),
    )
    .unwrap();
}

/// `resources.json`, empty where there is none.
pub(crate) fn read() -> Table {
    match fs::read_to_string(file()) {
        Ok(text) => serde_json::from_str(&text).unwrap(),
        Err(_) => Table::new(),
    }
}

/// The table that the README holds now.
pub(crate) fn in_readme() -> String {
    let text = fs::read_to_string(readme()).unwrap();
    let (_, rest) = text.split_once(BEGIN).unwrap();
    rest.split_once(END).unwrap().0.to_owned()
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("resources.json")
}

fn readme() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")
}

/// One line a kernel.
fn written(table: &Table) -> String {
    let lines: Vec<String> = table
        .iter()
        .map(|(kernel, targets)| {
            let targets: Vec<String> = TARGETS
                .iter()
                .filter_map(|target| Some((target, targets.get(*target)?)))
                .map(|(target, [registers, shared])| {
                    format!("\"{target}\": [{registers}, {shared}]")
                })
                .collect();
            format!("  \"{kernel}\": {{{}}}", targets.join(", "))
        })
        .collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// One line for the formats of a kernel: registers for each target, then static shared memory.
pub(crate) fn markdown(table: &Table) -> String {
    let mut families: Vec<(String, Vec<&BTreeMap<String, Resources>>)> = Vec::new();
    for kernel in Kernel::all().into_iter().chain(Kernel::all_sm90()) {
        let family = family(kernel);
        let Some(targets) = table.get(&kernel.name()) else {
            continue;
        };
        match families.iter_mut().find(|(name, _)| *name == family) {
            Some((_, kernels)) => kernels.push(targets),
            None => families.push((family, vec![targets])),
        }
    }
    let mut text = format!("| kernel | {} | shared |\n|---|", TARGETS.join(" | "));
    text.push_str(&"---|".repeat(TARGETS.len() + 1));
    text.push('\n');
    for (family, kernels) in families {
        let _ = write!(text, "| `{family}` |");
        for target in TARGETS {
            let registers = kernels.iter().filter_map(|k| Some(k.get(target)?[0]));
            let _ = write!(text, " {} |", range(registers));
        }
        let shared = kernels.iter().flat_map(|k| k.values().map(|r| r[1]));
        let _ = writeln!(text, " {} |", range(shared));
    }
    text
}

/// A kernel without its format.
fn family(kernel: Kernel) -> String {
    let of_width = |name: &str, width: Width| match width {
        Width::Sm90 => format!("{name}_<format>_sm90"),
        width => format!("{name}_<format>_{}", width.get()),
    };
    match kernel {
        Kernel::Embed(_) => "embed_<format>".to_owned(),
        Kernel::NormQkvRope(_, width) => of_width("norm_qkv_rope", width),
        Kernel::Matvec(_, width) => of_width("matvec", width),
        Kernel::NormGateUp(_, width) => of_width("norm_gate_up", width),
        Kernel::Primitive(Primitive::Group) => kernel.name(),
        Kernel::Primitive(_) => "primitive_<name>".to_owned(),
        _ => kernel.name(),
    }
}

fn range(values: impl Iterator<Item = u32>) -> String {
    let values: Vec<u32> = values.collect();
    match (values.iter().min(), values.iter().max()) {
        (Some(least), Some(most)) if least == most => least.to_string(),
        (Some(least), Some(most)) => format!("{least}–{most}"),
        _ => "–".to_owned(),
    }
}
