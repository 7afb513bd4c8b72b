//! The service CA: made, rotated with a bridge each way, asked for, adopted, and judged by Go and OpenSSL.

mod adoption;
mod asked;
mod lab;
mod repair;
mod rotation;
mod unmanaged;
