;; Its core modules have memories of 2 MiB, which together are more than it may have.
;; world: export dsh:agent/request@0.1.0;
;; limit: memory-mib 8
;; fails: agent/request limit: memory limit 8 MiB (`memory-mib`): it asked for 9 MiB
;; always: each instance begins with them
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
;; component:
(core module (memory 32))
(@repeat 5 (core instance (instantiate {modules})))
