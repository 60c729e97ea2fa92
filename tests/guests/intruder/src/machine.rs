//! Steps over everything else that a machine could tell.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use wasip2::cli::{environment, stdin, terminal_stderr, terminal_stdin, terminal_stdout};
use wasip2::clocks::{monotonic_clock, wall_clock};
use wasip2::io::streams::StreamError;
use wasip2::random::{insecure, insecure_seed, random};
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::{IpAddressFamily, IpSocketAddress, Ipv4SocketAddress};
use wasip2::sockets::tcp_create_socket::create_tcp_socket;
use wasip2::sockets::udp_create_socket::create_udp_socket;

use crate::{Told, code};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// All variables, with their values.
    Environment,
    Arguments,
    WorkingDirectory,
    StandardInput,
    /// Which of the three streams are terminals.
    Terminals,
    /// Whether the clocks are there, and how fine they are.
    Clocks,
    /// Whether randomness is there and is not the same twice.
    Randomness,
    /// So many random bytes at once.
    RandomBytes {
        count: u64,
    },
    LookUp {
        name: String,
    },
    /// Computes for ever.
    Spin,
    /// Waits for ever.
    Sleep,
    Trap,
    Tcp {
        port: u16,
    },
    Udp {
        port: u16,
    },
}

/// Takes one step.
pub fn take(step: &Step) -> Told {
    match step {
        Step::Environment => Ok(json!(environment::get_environment())),
        Step::Arguments => Ok(json!(environment::get_arguments())),
        Step::WorkingDirectory => Ok(json!(environment::initial_cwd())),
        Step::StandardInput => match stdin::get_stdin().blocking_read(1024) {
            Ok(bytes) => Ok(json!(bytes.len())),
            Err(StreamError::Closed) => Ok(json!("closed")),
            Err(error) => Err(code(&error)),
        },
        Step::Terminals => Ok(json!([
            terminal_stdin::get_terminal_stdin().is_some(),
            terminal_stdout::get_terminal_stdout().is_some(),
            terminal_stderr::get_terminal_stderr().is_some(),
        ])),
        Step::Clocks => Ok(json!({
            "wall": wall_clock::now().seconds > 1_700_000_000,
            "monotonic": monotonic_clock::now() <= monotonic_clock::now(),
            "resolution-ns": monotonic_clock::resolution(),
        })),
        Step::Randomness => Ok(json!({
            "bytes": random::get_random_bytes(16) != random::get_random_bytes(16),
            "insecure": insecure::get_insecure_random_u64() != insecure::get_insecure_random_u64(),
            "seed": insecure_seed::insecure_seed() != (0, 0),
        })),
        Step::RandomBytes { count } => Ok(json!(random::get_random_bytes(*count).len())),
        Step::Spin => loop {
            std::hint::black_box(());
        },
        Step::Sleep => {
            monotonic_clock::subscribe_duration(u64::MAX).block();
            Ok(json!("an age is over"))
        }
        Step::Trap => std::process::abort(),
        Step::LookUp { name } => {
            let stream = resolve_addresses(&instance_network(), name).map_err(|error| code(&error))?;
            stream.subscribe().block();
            stream.resolve_next_address().map(|address| json!(address.is_some())).map_err(|error| code(&error))
        }
        Step::Tcp { port } => {
            let socket = create_tcp_socket(IpAddressFamily::Ipv4).map_err(|error| code(&error))?;
            let network = instance_network();
            socket.start_connect(&network, loopback(*port)).map_err(|error| code(&error))?;
            socket.subscribe().block();
            socket.finish_connect().map(|_| json!("connected")).map_err(|error| code(&error))
        }
        Step::Udp { port } => {
            let socket = create_udp_socket(IpAddressFamily::Ipv4).map_err(|error| code(&error))?;
            let network = instance_network();
            socket.start_bind(&network, loopback(0)).map_err(|error| code(&error))?;
            socket.finish_bind().map_err(|error| code(&error))?;
            socket.stream(Some(loopback(*port))).map(|_| json!("bound")).map_err(|error| code(&error))
        }
    }
}

fn loopback(port: u16) -> IpSocketAddress {
    IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address: (127, 0, 0, 1) })
}
