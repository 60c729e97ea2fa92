//! Extism takes core modules: the linker of the target is told to leave the module as it is.

fn main() {
    println!("cargo::rustc-link-arg=--skip-wit-component");
    // For `memcmp`, which code without `std` calls too.
    println!("cargo::rustc-link-arg=-lc");
}
