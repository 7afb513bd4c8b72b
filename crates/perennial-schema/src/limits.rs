//! The limits of a schema. The cost of a rule is estimated when the schema is compiled, as in a kube-apiserver.

/// Bytes of a CEL expression.
pub const RULE_BYTES: usize = 8 << 10;

/// Bytes of all CEL expressions of a schema.
pub const RULES_BYTES: usize = 256 << 10;

/// Levels of a CEL expression.
pub const RULE_DEPTH: usize = 100;

/// The estimated cost of one CEL expression per run, as in a kube-apiserver.
pub const RULE_COST: u64 = 10_000_000;

/// The estimated cost of all CEL expressions of a schema, each as often as it can run, as in a kube-apiserver.
pub const RULES_COST: u64 = 100_000_000;

/// Bytes of a compiled regular expression.
pub const PATTERN_BYTES: usize = 1 << 20;

/// Bytes of all compiled regular expressions of a schema.
pub const PATTERNS_BYTES: usize = 16 << 20;

/// Names in `x-kubernetes-list-map-keys`: each entry of such a list is compared by all of them.
pub const LIST_KEYS: usize = 32;

/// Bytes of the default of a key field.
pub const KEY_DEFAULT_BYTES: usize = 1 << 10;

/// The largest number of values in an object, if the schema does not limit it.
pub(crate) const VALUES: u64 = 50_000;

/// The largest number of characters in a text, if the schema does not limit it.
pub(crate) const CHARACTERS: u64 = 3 << 19;

/// The stack for reading a schema with rules: the parser of rules needs up to 40 kB for each level, and a rule of
/// [`RULE_BYTES`] can have half as many levels before they are counted.
pub(crate) const STACK: usize = 256 << 20;
