//! The graph in the DOT language, for Graphviz.

use std::fmt::Write as _;

use super::{Graph, colour};

/// Returns the graph in the DOT language.
pub(crate) fn dot(graph: &Graph) -> String {
    let mut text = String::from(
        "digraph catalog {\n  rankdir=LR;\n  node [shape=box, style=filled, fontname=\"sans-serif\", fontsize=10];\n",
    );
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "  {line}").expect("a String takes all that is written to it");
    };
    for (key, node) in &graph.nodes {
        let label =
            node.lines.iter().filter(|line| !line.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n");
        line(format_args!("{} [label={}, fillcolor={:?}];", quoted(key), quoted(&label), node.kind.fill()));
    }
    for link in &graph.links {
        line(format_args!("{} -> {} [color={:?}];", quoted(&link.from), quoted(&link.to), colour(link.delivery)));
    }
    text.push_str("}\n");
    text
}

/// Quotes a string. DOT needs escapes only for the quote, the backslash and the end of a line.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
