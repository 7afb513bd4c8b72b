//! Text tables with columns of minimal width, as in `kubectl`.

use std::io::{self, Write};

/// A table with a header.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Headings, each before the row with this number.
    headings: Vec<(usize, String)>,
}

/// The maximum width of wrapped text.
const WIDTH: usize = 120;

impl Table {
    /// Returns an empty table with these column titles.
    pub(crate) fn new(header: &[&str]) -> Table {
        Table { rows: vec![header.iter().map(ToString::to_string).collect()], headings: Vec::new() }
    }

    /// Returns whether the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// Adds a heading for the rows after it.
    pub(crate) fn heading(&mut self, text: String) {
        self.headings.push((self.rows.len(), text));
    }

    /// Adds a row. Prints empty cells as `-`, so that programs can count the columns.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let dash = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.rows.push(cells.into_iter().map(dash).collect());
    }

    /// Prints the table for a terminal, with three spaces between columns.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut headings = self.headings.iter().peekable();
        for (number, row) in self.rows.iter().enumerate() {
            while let Some((_, text)) = headings.next_if(|(before, _)| *before == number) {
                writeln!(out, "{text}")?;
            }
            let mut line = String::new();
            for (cell, &width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:width$}   "));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Prints a Markdown table.
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

/// Prints the title of a section.
pub(crate) fn section(title: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{title}")
}

/// Prints text after a label, wrapped to the width of a terminal.
pub(crate) fn labelled(label: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
    wrapped(&format!("  {label:<14}"), text, out)
}

/// Prints text after a prefix, wrapped to the width of a terminal.
pub(crate) fn wrapped(prefix: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
    let indent = prefix.chars().count();
    let mut line = prefix.to_owned();
    for word in text.split(' ') {
        let used = line.chars().count();
        if used > indent && used + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{line}")?;
            line = " ".repeat(indent);
        }
        if line.chars().count() > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{}", line.trim_end())
}
