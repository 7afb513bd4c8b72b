//! The service CA: issued, rotated with cross-certificates in both directions, requested, adopted, and verified by Go and OpenSSL.

/// Runs a test on the embedded server, and on a real one with the RBAC of the manifests.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod embedded {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Lab::embedded().await).await;
            })*
        }
        mod real {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Lab::real().await).await;
            })*
        }
    };
}

mod adoption;
mod asked;
mod lab;
mod repair;
mod rotation;
mod status;
mod unmanaged;
