//! The service CA: made, rotated with a bridge each way, asked for, adopted, and judged by Go and OpenSSL.

/// On the embedded server, and on a real one with the rights of the manifests.
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
