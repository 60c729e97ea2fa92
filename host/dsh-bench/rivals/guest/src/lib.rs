//! The policy as an Extism plugin. Without `std`, which on this target would bring imports that Extism does not have; the input is copied
//! eight bytes at a time, as Extism's own kit does.

#![no_std]

extern crate alloc;

use alloc::vec::Vec;

use dsh_rivals_policy::{Reads, allows};

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

#[cfg(target_family = "wasm")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

#[link(wasm_import_module = "extism:host/env")]
unsafe extern "C" {
    safe fn input_length() -> u64;
    safe fn input_load_u8(at: u64) -> u8;
    safe fn input_load_u64(at: u64) -> u64;
    safe fn alloc(bytes: u64) -> u64;
    safe fn store_u8(at: u64, byte: u8);
    safe fn output_set(at: u64, bytes: u64);
}

fn input() -> Vec<u8> {
    let length = input_length();
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 8);
    let whole = length / 8 * 8;
    for at in (0..whole).step_by(8) {
        bytes.extend_from_slice(&input_load_u64(at).to_le_bytes());
    }
    for at in whole..length {
        bytes.push(input_load_u8(at));
    }
    bytes
}

fn answer(reads: Reads) -> i32 {
    let Ok(allowed) = allows(&input(), reads) else { return 1 };
    let at = alloc(1);
    store_u8(at, if allowed { b'1' } else { b'0' });
    output_set(at, 1);
    0
}

/// Looks at the last two messages.
#[unsafe(no_mangle)]
pub extern "C" fn last() -> i32 {
    answer(Reads::Last)
}

/// Looks at every text.
#[unsafe(no_mangle)]
pub extern "C" fn all() -> i32 {
    answer(Reads::All)
}
