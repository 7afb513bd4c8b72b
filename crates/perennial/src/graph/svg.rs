//! Draws the graph as SVG: layers from left to right, ordered so that few links cross.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Graph, Kind, Node, Speed, colour};

/// The size of a box. A test checks that the longest name fits.
const BOX: (f64, f64) = (350.0, 34.0);
const GAP: (f64, f64) = (100.0, 12.0);
const MARGIN: f64 = 24.0;
const LEGEND: f64 = 40.0;

/// The number of passes that order the layers. More passes change almost nothing.
const PASSES: usize = 12;

/// Returns the graph as SVG.
pub(crate) fn svg(graph: &Graph) -> String {
    let layers = layers(graph);
    let rows = layers.iter().map(Vec::len).max().unwrap_or(0);
    let width = layers.len() as f64 * (BOX.0 + GAP.0) - GAP.0 + 2.0 * MARGIN;
    let height = rows as f64 * (BOX.1 + GAP.1) + 2.0 * MARGIN + LEGEND;
    let places = places(&layers, height);

    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut push = |line: String| writeln!(text, "{line}").expect("a String takes all that is written to it");
    push(legend());
    for link in &graph.links {
        push(curve(places[link.from.as_str()], places[link.to.as_str()], colour(link.delivery)));
    }
    for (key, node) in &graph.nodes {
        push(node_box(places[key.as_str()], node));
    }
    text.push_str("</svg>\n");
    text
}

/// Returns the nodes of each layer, ordered by the mean position of their neighbours, without empty layers.
fn layers(graph: &Graph) -> Vec<Vec<&str>> {
    let mut by_layer: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (key, node) in &graph.nodes {
        by_layer.entry(node.layer).or_default().push(key);
    }
    let mut layers: Vec<Vec<&str>> = by_layer.into_values().collect();
    let mut neighbours: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for link in &graph.links {
        neighbours.entry(&link.from).or_default().push(&link.to);
        neighbours.entry(&link.to).or_default().push(&link.from);
    }
    for _ in 0..PASSES {
        let heights: BTreeMap<&str, f64> = layers
            .iter()
            .flat_map(|layer| {
                layer.iter().enumerate().map(|(row, &key)| (key, (row as f64 + 0.5) / layer.len() as f64))
            })
            .collect();
        let mean = |key: &str| {
            let heights: Vec<f64> = neighbours.get(key).into_iter().flatten().map(|key| heights[key]).collect();
            heights.iter().sum::<f64>() / heights.len().max(1) as f64
        };
        for layer in &mut layers {
            layer.sort_by(|one, other| mean(one).total_cmp(&mean(other)).then_with(|| one.cmp(other)));
        }
    }
    layers
}

/// Returns the upper left corner of each box. Every layer uses the whole height.
fn places<'a>(layers: &[Vec<&'a str>], height: f64) -> BTreeMap<&'a str, (f64, f64)> {
    let mut places = BTreeMap::new();
    for (column, layer) in layers.iter().enumerate() {
        let x = MARGIN + column as f64 * (BOX.0 + GAP.0);
        let step = (height - 2.0 * MARGIN - LEGEND) / layer.len() as f64;
        for (row, &key) in layer.iter().enumerate() {
            places.insert(key, (x, MARGIN + LEGEND + (row as f64 + 0.5) * step - BOX.1 / 2.0));
        }
    }
    places
}

/// Returns a curve from the right side of one box to the left side of another, or along the right side within a layer.
fn curve(from: (f64, f64), to: (f64, f64), colour: &str) -> String {
    let start = (from.0 + BOX.0, from.1 + BOX.1 / 2.0);
    let same_layer = from.0 == to.0;
    let end = (if same_layer { to.0 + BOX.0 } else { to.0 }, to.1 + BOX.1 / 2.0);
    let bend = if same_layer { GAP.0 / 2.0 } else { (end.0 - start.0) / 2.0 };
    let second = if same_layer { end.0 + bend } else { end.0 - bend };
    format!(
        "<path d=\"M{:.0},{:.1} C{:.0},{:.1} {second:.0},{:.1} {:.0},{:.1}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.3\"/>",
        start.0,
        start.1,
        start.0 + bend,
        start.1,
        end.1,
        end.0,
        end.1
    )
}

fn node_box((x, y): (f64, f64), node: &Node) -> String {
    let (width, height) = BOX;
    let mut text = format!(
        "<rect x=\"{x:.0}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height}\" rx=\"5\" fill=\"{}\" stroke=\"#555\"/>",
        node.kind.fill()
    );
    let lines: Vec<&String> = node.lines.iter().filter(|line| !line.is_empty()).collect();
    for (number, line) in lines.iter().enumerate() {
        let first = number == 0;
        let baseline = if lines.len() == 1 { y + 21.0 } else { y + 14.0 + 13.0 * number as f64 };
        text.push_str(&format!(
            "<text x=\"{:.0}\" y=\"{baseline:.1}\" font-size=\"{}\" fill=\"{}\">{}</text>",
            x + 7.0,
            if first { 12 } else { 9 },
            if first { "#111" } else { "#555" },
            escaped(line)
        ));
    }
    text
}

fn legend() -> String {
    let mut text = String::new();
    let mut x = MARGIN;
    let mut entry = |shape: String, title: &str| {
        text.push_str(&shape.replace("{x}", &x.to_string()));
        text.push_str(&format!(
            "<text x=\"{}\" y=\"{}\" font-size=\"12\" fill=\"#111\">{title}</text>",
            x + 32.0,
            MARGIN + 12.0
        ));
        x += 60.0 + title.len() as f64 * 7.0;
    };
    for kind in [Kind::Leaf, Kind::Signer, Kind::Bundle, Kind::Verifier] {
        let fill = kind.fill();
        entry(
            format!(
                "<rect x=\"{{x}}\" y=\"{MARGIN}\" width=\"26\" height=\"16\" rx=\"3\" fill=\"{fill}\" stroke=\"#555\"/>"
            ),
            kind.title(),
        );
    }
    for speed in [Speed::Reloaded, Speed::Revisioned, Speed::Never] {
        let (middle, stroke) = (MARGIN + 8.0, speed.colour());
        entry(format!("<path d=\"M{{x}},{middle} h26\" stroke=\"{stroke}\" stroke-width=\"2\"/>"), speed.title());
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use perennial_core::catalog::{Catalog, Day};

    use super::*;

    #[test]
    fn every_text_fits_its_box() {
        for day in [Day::One, Day::Two] {
            for node in Graph::of(Catalog::builtin(), day).nodes.values() {
                // The average width of a letter of common fonts at these sizes.
                for (line, letter) in node.lines.iter().zip([6.6, 5.0]) {
                    assert!(line.chars().count() as f64 * letter <= BOX.0 - 14.0, "{line}");
                }
            }
        }
    }

    #[test]
    fn no_two_boxes_overlap() {
        for day in [Day::One, Day::Two] {
            let graph = Graph::of(Catalog::builtin(), day);
            let layers = layers(&graph);
            let rows = layers.iter().map(Vec::len).max().unwrap();
            let places = places(&layers, rows as f64 * (BOX.1 + GAP.1) + 2.0 * MARGIN + LEGEND);
            for layer in &layers {
                for pair in layer.windows(2) {
                    assert!(places[pair[0]].1 + BOX.1 < places[pair[1]].1, "{pair:?}");
                }
            }
            assert_eq!(places.len(), graph.nodes.len());
        }
    }
}
