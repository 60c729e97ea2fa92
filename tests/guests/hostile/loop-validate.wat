;; It loops for ever over its configuration.
;; world: export dsh:plugin/configure@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 5
;; load: plugin `loop-validate` failed in `plugin/configure`: it computed for longer than the limit `cpu-ms` of 5 ms
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
(func (export "dsh:plugin/configure@0.1.0#validate") (param i32 i32) (result i32) (loop (br 0)) unreachable)
