//! The text of the catalog's types in tables, pages and JSON.

use std::fmt;

use serde::{Serialize, Serializer};

use super::types::{
    BundleInput, Component, Condition, Custody, Day, Delivery, Leaf, Object, ObjectName, Place, Purpose, Scope, Signer,
    Succession, Trust,
};

impl Serialize for Signer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signer::Itself => "(self)",
            Signer::Row(id) => id,
        })
    }
}

impl Serialize for Component {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.operator())
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Object(object) => object.fmt(f),
            Place::File(file) => f.write_str(file),
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trust::Bundle(id) => f.write_str(id),
            Trust::Row(id) => write!(f, "{id} itself"),
        }
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leaf::Row(id) => f.write_str(id),
            Leaf::AnyBy(id) => write!(f, "any by {id}"),
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Purpose::Server => "server",
            Purpose::Client => "client",
        })
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Day::One => "day-1",
            Day::Two => "day-2",
        })
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Delivery::Reloaded { within } => write!(f, "reloaded ({within})"),
            Delivery::Revisioned => f.write_str("revisioned"),
            Delivery::Relayed { within } => write!(f, "revisioned, then handed on ({within})"),
            Delivery::Never => f.write_str("never"),
            Delivery::Indirect => f.write_str("indirect"),
        }
    }
}

impl fmt::Display for Custody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Custody::Cluster => "cluster",
            Custody::Offline => "offline",
            Custody::Discarded => "discarded",
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Cluster => "one",
            Scope::Node => "per node",
            Scope::Service => "per Service",
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::Always => "always",
            Condition::BareMetal => "bare metal",
            Condition::ImageBased => "image-based installation",
            Condition::InternalReleaseImage => "InternalReleaseImage manifest",
        })
    }
}

impl fmt::Display for Succession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Succession::Refresh(after) => write!(f, "after {after}"),
            Succession::RefreshBefore(left) => write!(f, "{left} before its end"),
            Succession::AdoptedBy(row) => write!(f, "adopted by {row}"),
            Succession::ReplacedBy(row) => write!(f, "replaced by {row}"),
            Succession::Never => f.write_str("never"),
        }
    }
}

impl fmt::Display for BundleInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BundleInput::History(row) => write!(f, "{row} (history)"),
            BundleInput::Bundle(bundle) => f.write_str(bundle),
            BundleInput::First(bundle) => write!(f, "{bundle} (first)"),
            BundleInput::Foreign(object) => write!(f, "{object} (foreign)"),
        }
    }
}
