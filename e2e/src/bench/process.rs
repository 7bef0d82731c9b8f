//! What the kernel tells about a process: CPU time, resident memory, open files.

use std::fs;

use anyhow::{Context, Result};

/// The kernel's unit in `/proc/<pid>/stat`; the same on every Linux that runs this.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of CPU, user and system, over all threads.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = read(pid, "stat")?;
    // The name in parentheses may hold anything; the state is the first field behind it.
    let (_, fields) = stat.rsplit_once(") ").context("no name in stat")?;
    let mut ticks = fields.split(' ').skip(11).map(str::parse::<f64>);
    let mut next = || ticks.next().context("no CPU time in stat");
    Ok((next()?? + next()??) / TICKS_PER_SECOND)
}

/// Resident memory in megabytes (10^6 bytes).
pub fn resident_megabytes(pid: u32) -> Result<f64> {
    megabytes(pid, "status", "VmRSS:")
}

/// The part of it that no file stands behind: heap and stacks, not the program's own code.
pub fn anonymous_megabytes(pid: u32) -> Result<f64> {
    megabytes(pid, "smaps_rollup", "Anonymous:")
}

/// Resident memory, with each page that several processes map counted in parts. Pages of a file that only this process maps count whole.
pub fn proportional_megabytes(pid: u32) -> Result<f64> {
    megabytes(pid, "smaps_rollup", "Pss:")
}

fn megabytes(pid: u32, file: &str, key: &str) -> Result<f64> {
    let text = read(pid, file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kilobytes: f64 = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .with_context(|| format!("no {key} in {file}"))?
        .parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}

/// Open file descriptors.
pub fn open_files(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("read {path}"))
}
