"""The benchmark of secure sums: what a client, the node and a holder pay in each scheme, against plain float32."""
