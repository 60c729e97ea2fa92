;; It takes 1 MiB in each call, writes to all of it and never gives it back.
;; world: export dsh:agent/request@0.1.0;
;; world: export dsh:agent/step-result@0.1.0;
;; world: export dsh:tools/guard@0.1.0;
;; limit: memory-mib 8
(func $leak (local $at i32)
  (local.set $at (i32.mul (memory.grow (i32.const 16)) (i32.const 65536)))
  (memory.fill (local.get $at) (i32.const 7) (i32.const 0x100000)))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $leak)))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
(func (export "dsh:agent/step-result@0.1.0#handle") (param $turn i32) (param $step i32) (param $role i32) (param $blocks i32) (param $count i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $leak)))
  (call $said (local.get $blocks) (local.get $count)))
(func (export "dsh:tools/guard@0.1.0#check") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (call $leak)))
  (call $ok))
