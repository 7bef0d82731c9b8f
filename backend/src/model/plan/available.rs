//! Memory that can still be taken without swapping or being killed: the least of what the machine and every control group above this process have left.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Bytes left, and who sets the limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Available {
    pub bytes: u64,
    /// `this machine` or `the control group`.
    pub source: &'static str,
}

/// `None` where the system does not say (no `/proc`).
pub fn available() -> Option<Available> {
    below(Path::new("/"))
}

fn below(root: &Path) -> Option<Available> {
    let machine = machine(&fs::read_to_string(root.join("proc/meminfo")).ok()?)?;
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let group = folders(root, &groups)
        .iter()
        .filter_map(|folder| group(folder))
        .min();
    Some(match group {
        Some(bytes) if bytes < machine => Available {
            bytes,
            source: "the control group",
        },
        _ => Available {
            bytes: machine,
            source: "this machine",
        },
    })
}

fn machine(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The folders of this process's control group and of all above it, for version 2 (`0::/a/b`) and the memory controller of version 1
/// (`5:memory:/a/b`). In a container the path may belong to the host; the mount's own root is then the only folder that exists.
fn folders(root: &Path, groups: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let mount = match controllers {
            "" => root.join("sys/fs/cgroup"),
            list if list.split(',').any(|name| name == "memory") => {
                root.join("sys/fs/cgroup/memory")
            }
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        folders.extend(path.ancestors().map(|part| mount.join(part)));
    }
    folders
}

/// Limit less use, where cached file pages do not count as used: the kernel gives them up before it refuses memory.
fn group(folder: &Path) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(folder.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    // "max" does not parse: no limit.
    let (limit, used) = match number("memory.max") {
        Some(limit) => (limit, number("memory.current")?),
        None => (
            number("memory.limit_in_bytes")?,
            number("memory.usage_in_bytes")?,
        ),
    };
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached: u64 = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| ["inactive_file", "active_file"].contains(name))
        .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
        .sum();
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    const MEMINFO: &str =
        "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:    1000000 kB\n";

    #[test]
    fn without_control_groups_the_machine_decides() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(below(root.path()), None);
        write(root.path(), "proc/meminfo", MEMINFO);
        let expected = Available {
            bytes: 1_024_000_000,
            source: "this machine",
        };
        assert_eq!(below(root.path()), Some(expected));
    }

    #[test]
    fn the_tightest_control_group_on_the_way_up_decides_and_cached_files_are_not_used_memory() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "proc/meminfo", MEMINFO);
        write(root, "proc/self/cgroup", "0::/user/app\n");
        write(root, "sys/fs/cgroup/user/app/memory.max", "max\n");
        write(root, "sys/fs/cgroup/user/app/memory.current", "5\n");
        write(root, "sys/fs/cgroup/user/memory.max", "1000000\n");
        write(root, "sys/fs/cgroup/user/memory.current", "900000\n");
        write(
            root,
            "sys/fs/cgroup/user/memory.stat",
            "anon 100000\nfile 800000\nactive_file 300000\ninactive_file 400000\n",
        );
        let expected = Available {
            bytes: 800_000,
            source: "the control group",
        };
        assert_eq!(below(root), Some(expected));
    }

    #[test]
    fn version_1_of_control_groups_is_read_too() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "proc/meminfo", MEMINFO);
        write(
            root,
            "proc/self/cgroup",
            "6:cpu,cpuacct:/x\n5:memory:/host/path\n",
        );
        write(
            root,
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "5000000\n",
        );
        write(
            root,
            "sys/fs/cgroup/memory/memory.usage_in_bytes",
            "1000000\n",
        );
        assert_eq!(below(root).map(|left| left.bytes), Some(4_000_000));
    }
}
