//! How many threads are worth having: two on one core only get in each other's way.

use std::{collections::BTreeSet, fs, num::NonZero, path::Path, thread};

/// Physical cores that this process may use; where the system does not tell cores from threads, threads.
pub(super) fn physical() -> usize {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    cores(Path::new("/")).map_or(threads, |cores| cores.clamp(1, threads))
}

fn cores(root: &Path) -> Option<usize> {
    let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut cores = BTreeSet::new();
    for cpu in list(allowed.trim())? {
        let topology = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        let read = |name: &str| fs::read_to_string(topology.join(name)).ok();
        cores.insert((read("physical_package_id")?, read("core_id")?));
    }
    Some(cores.len())
}

/// `0-3,8` as numbers.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(allowed: &str, cores: &[(usize, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let status = format!("Name:\tx\nCpus_allowed_list:\t{allowed}\n");
        write("proc/self/status".to_owned(), &status);
        for (cpu, core) in cores {
            let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            write(format!("{topology}/physical_package_id"), "0\n");
            write(format!("{topology}/core_id"), core);
        }
        root
    }

    #[test]
    fn threads_of_one_core_count_once_and_only_allowed_ones_count() {
        let four = [(0, "0"), (1, "1"), (2, "0"), (3, "1"), (8, "5")];
        assert_eq!(cores(machine("0-3", &four).path()), Some(2));
        assert_eq!(cores(machine("0,2", &four).path()), Some(1));
        assert_eq!(cores(machine("0-1,8", &four).path()), Some(3));
        assert_eq!(cores(machine("0-4", &four).path()), None);
        assert_eq!(cores(machine("none", &four).path()), None);
        assert!(physical() >= 1);
    }
}
