//! Steps by C's library, which finds the granted directory of a path by itself.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;

use serde_json::json;

use crate::Told;

unsafe extern "C" {
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn access(path: *const c_char, mode: c_int) -> c_int;
    fn opendir(path: *const c_char) -> *mut c_void;
    fn close(fd: c_int) -> c_int;
    fn closedir(dir: *mut c_void) -> c_int;
}

/// `O_RDONLY` and `R_OK` of the library.
const O_RDONLY: c_int = 0x0400_0000;
const R_OK: c_int = 4;

fn done(well: bool) -> Told {
    if well { Ok(json!(true)) } else { Err(io::Error::last_os_error().kind().to_string()) }
}

fn text(path: &str) -> Result<CString, String> {
    CString::new(path).map_err(|error| error.to_string())
}

pub fn open_it(path: &str) -> Told {
    let path = text(path)?;
    // SAFETY: the path ends in a NUL, and what is opened is closed here.
    let opened = unsafe { open(path.as_ptr(), O_RDONLY) };
    let told = done(opened >= 0);
    if opened >= 0 {
        // SAFETY: it is open and nobody else has it.
        unsafe { close(opened) };
    }
    told
}

pub fn look(path: &str) -> Told {
    let path = text(path)?;
    // SAFETY: the path ends in a NUL.
    done(unsafe { access(path.as_ptr(), R_OK) } == 0)
}

pub fn list(path: &str) -> Told {
    let path = text(path)?;
    // SAFETY: the path ends in a NUL, and what is opened is closed here.
    let dir = unsafe { opendir(path.as_ptr()) };
    let told = done(!dir.is_null());
    if !dir.is_null() {
        // SAFETY: it is open and nobody else has it.
        unsafe { closedir(dir) };
    }
    told
}
