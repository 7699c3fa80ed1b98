//! State, CPU time and memory of a process, from `/proc`.

use std::time::Duration;
use std::{fs, io};

/// The unit of CPU time in `/proc/<pid>/stat`: `USER_HZ`, 100 on every architecture of Lambda.
const TICK: Duration = Duration::from_millis(10);

/// CPU time so far, user and system, of all threads.
///
/// The counters of threads are in nanoseconds but are gone when the thread ends; the process
/// counter includes ended threads but is in ticks. The larger one is more accurate. A running
/// thread lags by up to a tick: read while the process waits.
pub fn cpu(pid: u32) -> io::Result<Duration> {
    let mut threads = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that ended since the directory was read is in the process counter.
        if let Ok(schedstat) = fs::read_to_string(thread?.path().join("schedstat")) {
            let on_cpu = schedstat.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
            threads += Duration::from_nanos(on_cpu.unwrap_or(0));
        }
    }
    // `utime` and `stime`, the 14th and 15th field of all.
    let ticks = |at: usize, fields: &[String]| fields.get(at).and_then(|ticks| ticks.parse::<u32>().ok()).unwrap_or(0);
    let stat = stat(pid)?;
    Ok(threads.max(TICK * (ticks(11, &stat) + ticks(12, &stat))))
}

/// Resident memory.
pub fn rss_bytes(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("/proc has no VmRSS for the process"))
}

/// The state as a letter: `R`unning, `S`leeping, s`T`opped, `Z`ombie and others.
pub fn state(pid: u32) -> io::Result<char> {
    let state = stat(pid)?.first().and_then(|state| state.chars().next());
    state.ok_or_else(|| io::Error::other("/proc has no state for the process"))
}

/// The fields of `stat` after the program name, which may contain any character.
fn stat(pid: u32) -> io::Result<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    Ok(fields.split_whitespace().map(str::to_owned).collect())
}
