//! Services that ask for a certificate. Numbers are those of the original's scenarios.

macro_rules! on_both {
    ($($name:ident)*) => {
        mod embedded {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Cluster::embedded().await).await;
            })*
        }
        mod real {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Cluster::real().await).await;
            })*
        }
    };
}

mod allowed;
mod distrusted;
mod followed;
mod made;
mod obstacles;
mod shop;
mod troubles;
mod vain;

pub(crate) use shop::{Running, Shop};
