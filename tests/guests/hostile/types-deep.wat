;; It has a type of tuples in tuples, 2,000 levels deep.
;; world: export dsh:agent/request@0.1.0;
;; load: the component does not fit this host: failed to parse WebAssembly module: type nesting is too deep (at offset 0xc89)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
;; component:
(component (type (tuple u8)) (@repeat 2000 (type (tuple {n}))))
