//! Admission by the structural schema of a CustomResourceDefinition.
//!
//! [`Schema::admit`] treats a JSON value as a kube-apiserver treats a custom resource between
//! decoding and storing it, in the same order and with the same error texts:
//!
//! 1. nulls in fields that are not `nullable` are removed, unless the field has a default;
//! 2. defaults are filled in, also inside objects that are themselves defaults;
//! 3. unknown fields are pruned or rejected;
//! 4. types, enums, bounds and required fields are checked, then duplicates in lists of type
//!    `map` and `set`;
//! 5. the CEL rules of `x-kubernetes-validations` run, unless step 4 found an error of a kind
//!    that makes rules meaningless.
//!
//! For an update, [`Options::old`] is the stored object: transition rules see it as `oldSelf`,
//! and a field that was invalid before and did not change is accepted ("ratcheting").
//!
//! # Differences from a kube-apiserver
//!
//! CEL runs on the crate `kube-cel`, of which only the parser, the interpreter and the functions
//! are used; conversion, correlation with the old object and messages are implemented here. The
//! remaining differences:
//!
//! - Rules are not type-checked. Fields that the schema does not have are found
//!   ([`SchemaError`]); `self.count == 'x'` is not, and fails when it runs.
//! - The cost of rules is estimated when a schema is compiled ([`limits`]), not counted while they run.
//! - [`Schema::compile`] rejects `optionalOldSelf`, rules inside `allOf`, `fieldPath` with brackets, and keywords or
//!   formats that a server checks and this crate does not.
//! - Lists of type `set` and `map` compare in order under CEL's `==`; a server ignores the order.
//! - A number written as `4.0` in an integer field is an integer to rules; on a server a rule
//!   that reads it fails. The same holds for values of the wrong type, which a rule can see only in
//!   an update, if the schema has become stricter than the stored object.
//! - A list in a string field with a format is rejected; a server ignores it.
//! - Object metadata is not checked here: names, labels and the rest are the caller's.
//! - A server visits the fields of an object in random order, this crate in alphabetical order.
//!   Of several failed alternatives of an `anyOf` or `oneOf` this crate explains the first, a server the
//!   closest one.

mod cel_value;
mod check;
mod error;
pub mod limits;
mod lists;
mod node;
mod old;
mod prune;
mod rules;

pub use error::{ErrorKind, FieldError, Found};
pub use node::SchemaError;

use node::Node;
use serde_json::Value;

/// A compiled schema. Compile once, use for many objects, from any thread.
#[derive(Debug)]
pub struct Schema {
    root: Node,
    has_rules: bool,
}

/// The options of [`Schema::admit`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// The stored object, for an update.
    pub old: Option<&'a Value>,
    /// What happens to fields that the schema does not have.
    pub unknown_fields: UnknownFields,
}

/// What happens to fields that the schema does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// They are dropped silently, as with `fieldValidation=Ignore`.
    #[default]
    Prune,
    /// Each is an error, as with `fieldValidation=Strict`.
    Refuse,
}

impl Schema {
    /// Compiles the `openAPIV3Schema` of a CRD version. Its root is a resource: `apiVersion`, `kind`
    /// and `metadata` are known fields, and rules at the root see the name.
    pub fn compile(schema: &Value) -> Result<Schema, SchemaError> {
        node::check_patterns(schema)?;
        Schema::with_stack(schema, || {
            let mut root = Node::compile(schema)?;
            root.make_resource_root();
            Schema::with_rules(root)
        })
    }

    /// Compiles a schema of the same dialect for a value that is not a Kubernetes object, such as
    /// a configuration file.
    pub fn compile_plain(schema: &Value) -> Result<Schema, SchemaError> {
        node::check_patterns(schema)?;
        Schema::with_stack(schema, || Schema::with_rules(Node::compile(schema)?))
    }

    /// Compiles a schema with rules on a thread with a large stack: the parser of rules recurses before it counts levels.
    fn with_stack(
        schema: &Value,
        compile: impl FnOnce() -> Result<Schema, SchemaError> + Send,
    ) -> Result<Schema, SchemaError> {
        match node::rules_bytes(schema) {
            0 => compile(),
            bytes if bytes > limits::RULES_BYTES => Err(SchemaError::RulesTooLong { bytes }),
            _ => std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().stack_size(limits::STACK).spawn_scoped(scope, compile);
                thread.map_err(SchemaError::Thread)?.join().unwrap_or(Err(SchemaError::Parser))
            }),
        }
    }

    fn with_rules(root: Node) -> Result<Schema, SchemaError> {
        root.check_rules()?;
        rules::cost::check(&root)?;
        let has_rules = root.has_rules();
        Ok(Schema { root, has_rules })
    }

    /// Runs all steps, and returns the value as a server would store it, or all errors.
    ///
    /// Rejected unknown fields come first; the rest is checked as if they were absent.
    pub fn admit(&self, mut value: Value, options: Options<'_>) -> Result<Value, Vec<FieldError>> {
        self.drop_nulls(&mut value);
        self.apply_defaults(&mut value);
        let unknown = self.prune(&mut value);
        let mut errors = match options.unknown_fields {
            UnknownFields::Prune => Vec::new(),
            UnknownFields::Refuse => unknown.into_iter().map(FieldError::unknown).collect(),
        };
        errors.extend(self.validate(&value, options.old));
        if errors.is_empty() { Ok(value) } else { Err(errors) }
    }

    /// Step 1: removes nulls on fields that are neither nullable nor have a default.
    pub fn drop_nulls(&self, value: &mut Value) {
        prune::drop_nulls(Some(&self.root), value);
    }

    /// Step 2: fills in defaults.
    pub fn apply_defaults(&self, value: &mut Value) {
        // The limit is never reached.
        let _ = self.apply_defaults_within(value, usize::MAX);
    }

    /// The same, but stops if defaults would take more than so many bytes. Returns whether all were filled in.
    #[must_use = "a value that is not complete means nothing"]
    pub fn apply_defaults_within(&self, value: &mut Value, bytes: usize) -> bool {
        let mut room = bytes;
        prune::apply_defaults(&self.root, value, &mut room)
    }

    /// Step 3: removes unknown fields, and returns their paths, sorted.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        prune::prune(&self.root, value)
    }

    /// Steps 4 and 5: returns every error, none if the value is valid.
    pub fn validate(&self, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.validate_while(value, old, &|| true)
    }

    /// The same, but stops when `go_on` returns false. Then the result is incomplete.
    pub fn validate_while(&self, value: &Value, old: Option<&Value>, go_on: &dyn Fn() -> bool) -> Vec<FieldError> {
        let mut errors = check::check(&self.root, value, old, go_on);
        // An update does not report duplicates that existed before.
        if old.is_none_or(|old| lists::check(&self.root, old).is_empty()) {
            errors.extend(lists::check(&self.root, value));
        }
        if self.has_rules {
            if errors.iter().any(|error| error.kind.blocks_rules()) {
                errors.push(FieldError::rules_skipped());
            } else {
                errors.extend(rules::run(&self.root, value, old, go_on));
            }
        }
        errors
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "expectations and schemas read best in place")]
mod tests;
