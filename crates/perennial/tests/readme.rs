//! Tests the README: its samples are the output of the commands, and its table lists every command.
//!
//! `make generate` updates the samples by running this test with `UPDATE_EXPECT=1`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command in the directory of the README, and returns its output.
fn output(words: &[&str]) -> String {
    let called = Command::new(env!("CARGO_BIN_EXE_perennial")).args(words).current_dir(root()).output().unwrap();
    assert_eq!(String::from_utf8(called.stderr).unwrap(), "", "{words:?}");
    String::from_utf8(called.stdout).unwrap()
}

/// Returns the README with new samples, and their number. A sample is a block that starts with a `perennial` command without a cluster.
fn generated(readme: &str) -> (String, usize) {
    let (mut text, mut samples) = (String::new(), 0);
    let mut lines = readme.lines();
    while let Some(line) = lines.next() {
        text.push_str(&format!("{line}\n"));
        if line != "```console" {
            continue;
        }
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match block.first().and_then(|line| line.strip_prefix("$ perennial ")).filter(|it| is_generated(it)) {
            Some(words) => {
                samples += 1;
                let words: Vec<&str> = words.split_whitespace().collect();
                text.push_str(&format!("{}\n{}", block[0], output(&words)));
            }
            None => block.iter().for_each(|line| text.push_str(&format!("{line}\n"))),
        }
        text.push_str("```\n");
    }
    (text, samples)
}

fn is_generated(words: &str) -> bool {
    words.contains("--from examples/") || words.contains("--catalog")
}

#[test]
fn samples_are_what_the_commands_print() {
    let path = root().join("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (generated, samples) = generated(&readme);
    assert!(samples >= 2, "{samples} samples");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &generated).unwrap();
        return;
    }
    assert!(readme == generated, "README.md is out of date: run `make generate`\n{generated}");
}

#[test]
fn every_command_is_listed() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let help = output(&["--help"]);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    let commands: Vec<&str> = commands.into_iter().filter(|it| !it.is_empty() && *it != "help").collect();
    assert!(commands.len() > 10 && commands.contains(&"distrust"), "{commands:?}");
    for command in commands {
        let listed = format!("| `perennial {command}");
        assert!(readme.contains(&listed), "the table of README.md does not list {command}");
    }
}
