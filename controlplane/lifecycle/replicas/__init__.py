"""Background work of a replica: following and replacing other replicas, recovering a lost store, finding orphans."""
