;; It wants 100 MiB at once, and breaks off when it does not get them.
;; world: export dsh:agent/request@0.1.0;
;; limit: memory-mib 8
;; fails: agent/request limit: memory limit 8 MiB (`memory-mib`): it asked for 101 MiB
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (if (i32.eq (memory.grow (i32.const 1600)) (i32.const -1)) (then unreachable))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
