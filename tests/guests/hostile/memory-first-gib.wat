;; Its memory has 1 GiB to begin with.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: memory limit 64 MiB (`memory-mib`): it asked for 1024 MiB
;; always: each instance begins with that memory
(memory (export "memory") 16384)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
