//! What the kernel tells about a process: CPU time, resident memory, open files.

use std::fs;

use anyhow::{Context, Result, bail};

/// The kernel's unit in `/proc/<pid>/stat`; the same on every Linux that runs this.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of CPU, user and system, over all threads.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let [own, _] = cpu_times(pid)?;
    Ok(own)
}

/// The same with that of all children that have ended and were waited for.
pub fn cpu_seconds_with_children(pid: u32) -> Result<f64> {
    Ok(cpu_times(pid)?.iter().sum())
}

fn cpu_times(pid: u32) -> Result<[f64; 2]> {
    let stat = read(pid, "stat")?;
    // The name in parentheses may hold anything; the state is the first field behind it.
    let (_, fields) = stat.rsplit_once(") ").context("no name in stat")?;
    let mut ticks = fields.split(' ').skip(11).map(str::parse::<f64>);
    let mut next = || ticks.next().context("no CPU time in stat");
    let mut pair = || Ok::<_, anyhow::Error>((next()?? + next()??) / TICKS_PER_SECOND);
    Ok([pair()?, pair()?])
}

/// Seconds that all cores together have worked since the machine started, and those that a hypervisor took from them.
pub fn machine_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Result<Vec<f64>, _> = line.split_whitespace().skip(1).map(str::parse).collect();
    let ticks = ticks.with_context(|| format!("{line:?} in /proc/stat"))?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted as user already.
    let [user, nice, system, _, _, irq, softirq, steal, ..] = ticks[..] else {
        bail!("{line:?} in /proc/stat is too short");
    };
    Ok((user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND)
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
