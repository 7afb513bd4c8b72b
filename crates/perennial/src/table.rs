//! Tables for people: columns as wide as they need to be, as `kubectl` prints them.

use std::io::{self, Write};

/// A table with a header.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these column titles.
    pub(crate) fn new(header: &[&str]) -> Table {
        Table { rows: vec![header.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row. Empty cells print as `-`, so that columns stay countable.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        let dash = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.rows.push(cells.into_iter().map(dash).collect());
    }

    /// For terminals: three spaces between columns.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, &width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:width$}   "));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// For pages: a Markdown table.
    pub(crate) fn print_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        for (number, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|").replace('<', "&lt;")).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
            if number == 0 {
                writeln!(out, "|{}", "---|".repeat(row.len()))?;
            }
        }
        Ok(())
    }
}
