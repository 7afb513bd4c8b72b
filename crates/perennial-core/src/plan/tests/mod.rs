//! The planner on whole snapshots: scenarios in words, with days for instants. Day 0 is noon of an arbitrary day.

mod broken;
mod campaign;
mod crash;
mod cross;
mod etcd;
mod fixture;
mod forecast;
mod foreign;
mod gates;
mod look;
mod lost;
mod new;
mod obstacles;
mod outage;
mod policy;
mod promotion;
mod recovery;
mod relayed;
mod rows;
mod scope;
mod text;
mod totality;
mod trouble;
mod verify;
mod versions;
mod writes;
