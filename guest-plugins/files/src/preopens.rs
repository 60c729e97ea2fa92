//! Which directories were granted: what WASI opened for this instance. The standard library knows, but has no way to tell.

use dsh_glob::normalise;
use std::path::Path;

/// The names under which they are seen, as they were granted.
#[cfg(target_family = "wasm")]
pub fn names() -> Vec<String> {
    use std::mem::MaybeUninit;

    /// An element of the list in the canonical ABI: `tuple<own<descriptor>, string>`.
    #[repr(C)]
    struct Element {
        descriptor: u32,
        name: *mut u8,
        name_bytes: usize,
    }

    /// A list in the canonical ABI.
    #[repr(C)]
    struct List {
        elements: *mut Element,
        count: usize,
    }

    // The import that the C library behind the standard library has too. Bindings of our own would have to repeat the whole
    // of `wasi:filesystem/types`, in the very version of that library.
    #[link(wasm_import_module = "wasi:filesystem/preopens@0.2.6")]
    unsafe extern "C" {
        #[link_name = "get-directories"]
        fn get_directories(list: *mut List);
    }

    #[link(wasm_import_module = "wasi:filesystem/types@0.2.6")]
    unsafe extern "C" {
        #[link_name = "[resource-drop]descriptor"]
        fn drop_descriptor(descriptor: u32);
    }

    let mut list = MaybeUninit::<List>::uninit();
    // SAFETY: the function fills the list it is given a place for. List and names were allocated by `cabi_realloc`, that is by the
    // global allocator with just these sizes, and are ours, as is each descriptor.
    unsafe {
        get_directories(list.as_mut_ptr());
        let list = list.assume_init();
        if list.count == 0 {
            return Vec::new();
        }
        let elements = Vec::from_raw_parts(list.elements, list.count, list.count);
        let name = |element: Element| {
            drop_descriptor(element.descriptor);
            let bytes = element.name_bytes;
            if bytes == 0 { String::new() } else { String::from_raw_parts(element.name, bytes, bytes) }
        };
        let names: Vec<_> = elements.into_iter().map(name).collect();
        // What was not granted is a directory `.` in which nothing can be done.
        let is_granted = |name: &String| name != "." || std::fs::metadata(".").is_ok();
        names.into_iter().filter(is_granted).collect()
    }
}

/// Whether a path, normalised and relative to the workspace, is in a granted directory.
pub fn hold(path: &str) -> bool {
    names()
        .iter()
        .map(|name| normalise(name))
        .any(|name| name.as_str() == "." || Path::new(path).starts_with(name.as_str()))
}

/// None on other targets: there is no WASI.
#[cfg(not(target_family = "wasm"))]
pub fn names() -> Vec<String> {
    Vec::new()
}
